"""What collections and optimizers keep of a program's own: hooks, attributes, threads, and batches written to."""

import copy
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
from test_torch import batch  # noqa: E402

SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)


def bags(kind=tt.EmbeddingBagCollection, device="cpu", optimizer=None):
    table = tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"])
    return kind([table], device=device, optimizer=optimizer)


class Model(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.tables = tables

    def forward(self, features):
        return self.tables(features).values()


class Doubled(tt.EmbeddingBagCollection):
    factor = 1

    def forward(self, features):
        out = super().forward(features)
        return tt.KeyedTensor(out.keys(), out.length_per_key(), out.values() * self.factor)


def test_hooks_and_attributes_stay_when_tables_are_sharded():
    tables, seen = bags(Doubled, optimizer=SGD), []
    tables.factor = 2
    tables.register_forward_hook(lambda *_: seen.append("forward"))
    tables.register_full_backward_hook(lambda *_: seen.append("backward"))
    tables.register_state_dict_pre_hook(lambda *_: seen.append("state"))
    expected = tables(batch()).values().detach()
    assert seen == ["forward"]
    model = tt.DistributedModelParallel(Model(tables))
    out = model(batch())
    assert torch.equal(out, expected)
    model.state_dict()
    assert seen == ["forward", "forward", "state"]
    assert model.module.tables.factor == 2 and not model.module.tables.factor == Doubled.factor


def test_a_sharded_collection_has_only_tables():
    tables = bags()
    tables.scale = nn.Parameter(torch.ones(1))
    with pytest.raises(NotImplementedError, match="tables has scale besides its tables.*put both into a module"):
        tt.DistributedModelParallel(Model(tables))
    tables = bags()
    tables.after = nn.ReLU()
    with pytest.raises(NotImplementedError, match="tables has after besides its tables"):
        tt.DistributedModelParallel(Model(tables))


def test_a_second_backward_reads_the_batch_again():
    tables, features = bags(optimizer=SGD), batch()
    loss = tables(features).values().sum()
    features.values().zero_()
    loss.backward(retain_graph=True)  # the first one does not
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*were written after they were looked up"):
        loss.backward()
    with torch.inference_mode():
        features = batch()
    bags()(features).values().sum().backward()  # whose tensors have no versions


def test_hooks_of_state_dicts_of_fused_optimizers_are_refused():
    model = tt.DistributedModelParallel(Model(bags(optimizer=SGD)))
    with pytest.raises(NotImplementedError, match="FusedOptimizer.register_state_dict_post_hook"):
        model.fused_optimizer.register_state_dict_post_hook(print)


def test_a_module_without_tables_has_no_optimizer_in_backward():
    with pytest.raises(ValueError, match=r"a Linear was given that has no tables: give its parameters\(\)"):
        tt.apply_optimizer_in_backward(torch.optim.SGD, nn.Linear(2, 1), {"lr": 0.1})


@pytest.mark.parametrize("kind", ["bags", "sequences"])
def test_threads_take_turns_in_quantized_tables(kind):
    made = [tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"]), tt.EmbeddingConfig(6, 4, "a", feature_names=["x"])]
    tables = tt.EmbeddingBagCollection(made[:1]) if kind == "bags" else tt.EmbeddingCollection(made[1:])
    quantized = tt.quantize(tables, torch.int8)

    def rows():
        out = quantized(batch())
        return out.values() if kind == "bags" else out["x"].values()

    expected, wrong = rows(), []

    def infer():
        wrong.append(sum(not torch.equal(rows(), expected) for _ in range(100)))

    threads = [threading.Thread(target=infer) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0, 0, 0]


def test_only_threads_of_one_rank_take_turns():
    group = tessera.ProcessGroup(rank=0, world_size=1)
    group.world_size = 2
    with pytest.raises(tessera.FailedPrecondition, match="different orders"):
        group.let_threads_wait()


def test_options_of_adopted_modules_are_asked_and_not_changed():
    model = nn.Sequential(nn.Embedding(6, 4, padding_idx=3, max_norm=2.0), nn.EmbeddingBag(6, 4, mode="sum"))
    state = {key: value.clone() for key, value in model.state_dict().items()}
    tt.adopt(model, None)
    table, bag = model
    assert (table.padding_idx, table.max_norm, table.sparse, bag.mode) == (3, 2.0, False, "sum")
    for change in ("padding_idx", "max_norm", "scale_grad_by_freq", "mode"):
        with pytest.raises(NotImplementedError, match=f"{change} of an adopted module cannot be changed: release"):
            setattr(table, change, 1)
    table.reset_parameters()
    assert not table.weight[3].any() and table.weight.abs().max() > 6**-0.5, "PyTorch's start values"
    model.load_state_dict(state)
    assert torch.equal(table.weight, state["0.weight"]) and torch.equal(bag.weight, state["1.weight"])
    table.weight = nn.Parameter(torch.full((6, 4), 0.5))
    assert (table(torch.tensor([1, 3])) == 0.5).all()


def test_quantized_tables_are_not_copied():
    quantized = tt.quantize(Model(bags()), torch.int8)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="cannot be copied or pickled: keep the trained model and quantize"):
            copied(quantized)


@pytest.mark.parametrize(
    "option, value, kind",
    [("momentum", 0.9, tt.EmbOptimType.EXACT_SGD), ("beta1", 0.8, tt.EmbOptimType.ADAM),
     ("eta", 0.1, tt.EmbOptimType.LARS_SGD)],
)  # fmt: skip
def test_options_that_a_fused_optimizer_has_not_are_refused(option, value, kind):
    with pytest.raises(NotImplementedError, match=f"{option} has no effect on exact_adagrad, and was given as {value}"):
        tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_ADAGRAD, option: value})
    tt.EmbeddingBagCollectionSharder({"optimizer": kind, option: value})


def test_a_rate_that_two_libraries_have_otherwise_is_asked_for():
    tables = bags()
    with pytest.raises(ValueError, match="give the lr of Adam: it is 0.001 by default in PyTorch, and 0.01 in FBGEMM"):
        tt.apply_optimizer_in_backward(torch.optim.Adam, tables.parameters(), {})
    tt.apply_optimizer_in_backward(torch.optim.Adagrad, tables.parameters(), {})


def test_plans_that_do_not_fit_the_model_are_refused():
    def sharded(plan):
        tables = bags(device="meta"), bags(device="meta")
        return tt.DistributedModelParallel(nn.ModuleDict(dict(zip("ef", tables))), plan=tt.ShardingPlan(plan))

    rows, whole = {"a": tt.row_wise()}, {"a": tt.table_wise(0)}
    for plan, named in (({"e": rows}, '"e"'), ({"e": rows, "f": rows, "g": rows}, '"e", "f", "g"')):
        with pytest.raises(ValueError, match=f'is for the modules {named}, and the model\'s collections are "e", "f"'):
            sharded(plan)
    with pytest.raises(NotImplementedError, match="two collections have a table a, and the plan cuts them otherwise"):
        sharded({"e": rows, "f": whole})
    modules = sharded({"e": rows, "f": rows}).plan.to_dict()["modules"]
    assert {table["sharding_type"] for module in modules for table in module["tables"]} == {"row_wise"}


def test_a_prefix_of_a_sharded_models_keys():
    model = tt.DistributedModelParallel(Model(bags()))
    state = {key: value.detach().clone() * 2 for key, value in model.state_dict(prefix="m.").items()}
    assert list(state) == ["m.tables.embedding_bags.a.weight"]
    model.load_state_dict(state, "m.")
    assert torch.equal(model.state_dict()["tables.embedding_bags.a.weight"], next(iter(state.values())))
    with pytest.raises(RuntimeError, match="Missing key"):
        model.load_state_dict(state)
    with pytest.raises(TypeError, match="give strict by its name"):
        model.load_state_dict(state, False)


def test_places_of_tables_say_what_has_no_effect():
    tables = bags()
    place = tables.embedding_bags["a"]
    for option, value in (("mode", "mean"), ("max_norm", 1.0), ("padding_idx", 1), ("scale_grad_by_freq", True)):
        with pytest.raises(NotImplementedError, match=f"{option} of a table's place has no effect"):
            setattr(place, option, value)
    place.mode = "sum"  # as it is
    with pytest.warns(UserWarning, match="register_forward_hook: a lookup of the collection does not call the places"):
        place.register_forward_hook(lambda *_: None)
