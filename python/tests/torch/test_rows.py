"""Rows as PyTorch's parameters: writes, optimizers, freezing, copies, ties, schedules, and adopted models."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.optim import _apply_optimizer_in_backward  # noqa: E402
from torch.optim.swa_utils import AveragedModel  # noqa: E402

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
from test_torch import batch, run_ranks  # noqa: E402

SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)


def configs(**more):
    return [
        tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"], **more),
        tt.EmbeddingBagConfig(4, 2, "b", feature_names=["y"], pooling=tt.PoolingType.MEAN, **more),
    ]


def bags(optimizer=None, **options):
    return tt.EmbeddingBagCollection(configs(**options), optimizer=optimizer)


class Plain(nn.Module):
    """The collection of ``bags`` in PyTorch's own modules."""

    def __init__(self, of):
        super().__init__()
        self.a, self.b = (
            nn.EmbeddingBag.from_pretrained(of.embedding_bags[t].weight.detach().clone(), freeze=False, mode=mode)
            for t, mode in (("a", "sum"), ("b", "mean"))
        )

    def forward(self, features):
        pairs = ((self.a, features["x"]), (self.b, features["y"]))
        return torch.cat([of(jagged.values(), jagged.offsets()[:-1].long()) for of, jagged in pairs], 1)


def loss_of(rows):
    return (rows * torch.arange(1.0, 7)).pow(2).sum()


def test_rows_are_parameters_over_the_tables_memory():
    ebc = bags(SGD)
    assert [n for n, _ in ebc.named_parameters()] == ["embedding_bags.a.weight", "embedding_bags.b.weight"]
    with torch.no_grad():
        ebc.embedding_bags["a"].weight.copy_(torch.arange(24.0).reshape(6, 4))
        ebc.state_dict()["embedding_bags.b.weight"][3] = 7
        nn.init.constant_(ebc.embedding_bags["b"].weight[:3], 2)
    assert ebc.core.weight("a").tolist() == torch.arange(24.0).reshape(6, 4).tolist()
    assert ebc.core.weight("b").tolist() == [[2, 2]] * 3 + [[7, 7]]
    out = ebc(batch()).values()
    out.sum().backward()
    assert (ebc.embedding_bags["a"].weight[1] == torch.arange(4.0, 8) - 0.5).all(), "the update is seen"
    assert ebc.embedding_bags["a"].weight.grad is None
    assert "embedding_bags" in repr(ebc) and "(a): BagRows(6, 4)" in repr(ebc)


@pytest.mark.parametrize("kind", ["FP16", "BF16"])
def test_rows_of_16_bits_too(kind):
    ebc = bags(SGD, data_type=tt.DataType[kind])
    weight = ebc.embedding_bags["a"].weight
    assert weight.dtype is {"FP16": torch.float16, "BF16": torch.bfloat16}[kind]
    weight.data.fill_(1.5)
    assert (ebc.core.weight("a") == 1.5).all()
    ebc(batch()).values().sum().backward()
    assert weight[1].tolist() == [1.0] * 4


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_without_an_optimizer_pytorchs_own_trains_the_rows(make):
    ebc = bags()
    plain = Plain(ebc)
    for model in (ebc, plain):
        optimizer = make(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            out = model(batch())
            loss_of(out if model is plain else out.values()).backward()
            optimizer.step()
    for mine, theirs in zip(ebc.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_one_optimizer_per_table_and_sequences_without_one():
    ebc = bags()
    plain = Plain(ebc)
    tt.apply_optimizer_in_backward(torch.optim.SGD, ebc.embedding_bags["a"].parameters(), {"lr": 0.5})
    dense = [p for _, p in tt.in_backward_optimizer_filter(ebc.named_parameters())]
    assert dense[0] is ebc.embedding_bags["b"].weight and len(dense) == 1
    with_options = torch.optim.SGD(dense, lr=0.1)
    theirs = torch.optim.SGD([{"params": [plain.a.weight], "lr": 0.5}, {"params": [plain.b.weight], "lr": 0.1}])
    for _ in range(2):
        for model, optimizer in ((ebc, with_options), (plain, theirs)):
            optimizer.zero_grad()
            out = model(batch())
            loss_of(out if model is plain else out.values()).backward()
            optimizer.step()
    for mine, expected in zip(ebc.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, expected)
    ec = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "a", feature_names=["x", "y"])])
    weight = ec.embeddings["a"].weight.detach().clone().requires_grad_()
    rows = ec(batch())
    (rows["x"].values() ** 2).sum().backward()
    torch.nn.functional.embedding(torch.tensor([1, 2]), weight).pow(2).sum().backward()
    torch.testing.assert_close(ec.embeddings["a"].weight.grad, weight.grad)


def test_torchs_own_optimizers_in_backward():
    ebc = bags()
    plain = Plain(ebc)
    for model in (ebc, plain):
        _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.1})
        out = model(batch())
        loss_of(out if model is plain else out.values()).backward()
    for mine, expected in zip(ebc.parameters(), plain.parameters()):
        torch.testing.assert_close(mine, expected)
    described = tt.EmbeddingBagCollection(configs(), device="meta")
    _apply_optimizer_in_backward(torch.optim.Adagrad, described.parameters(), {"lr": 0.25, "eps": 1e-6})
    model = tt.DistributedModelParallel(described)
    assert model.module._optimizers == [tessera.Optimizer("exact_adagrad", learning_rate=0.25, eps=1e-6)] * 2
    assert model.fused_optimizer.param_groups[0]["lr"] == 0.25


def test_weights_stay_when_an_optimizer_is_chosen():
    ebc = bags()
    held = ebc.embedding_bags["a"].weight
    ebc.load_state_dict({k: torch.ones_like(v) for k, v in ebc.state_dict().items()})
    tt.apply_optimizer_in_backward(tt.RowWiseAdagrad, ebc.parameters(), {"lr": 0.5})
    assert ebc.embedding_bags["a"].weight is held and (held == 1).all()
    ebc(batch()).values().sum().backward()
    assert (held[1] < 1).all() and (held[0] == 1).all()


@pytest.mark.parametrize("name", ["exact_sgd", "adam", "exact_adagrad"])
def test_frozen_tables_stay_with_their_states(name):
    torch.manual_seed(3)
    ebc = bags(tessera.Optimizer(name, learning_rate=0.5))
    loss_of(ebc(batch()).values()).backward()
    ebc.embedding_bags["a"].weight.requires_grad_(False)
    (shard,) = [s for s in ebc.core.shards() if s.table == "a"]
    rows, states = ebc.core.read_shard(shard)
    other, expected = ebc.embedding_bags["b"].weight.detach().clone(), ebc(batch()).values().detach()
    out = ebc(batch()).values()
    assert torch.equal(out, expected)
    loss_of(out).backward()
    again, states_again = ebc.core.read_shard(shard)
    assert (rows == again).all() and all((states[k] == states_again[k]).all() for k in states)
    assert not torch.equal(other, ebc.embedding_bags["b"].weight)
    ebc.requires_grad_(False)
    whole = [parameter.detach().clone() for parameter in ebc.parameters()]
    ebc(batch()).values().sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(whole, ebc.parameters()))
    ebc.requires_grad_(True)
    loss_of(ebc(batch()).values()).backward()
    assert (ebc.core.read_shard(shard)[0] != again).any()


def test_a_feature_of_a_frozen_and_of_a_trained_table_is_refused():
    tables = [tt.EmbeddingBagConfig(6, 4, name, feature_names=["x"]) for name in "ab"]
    ebc = tt.EmbeddingBagCollection(tables, optimizer=SGD)
    ebc.embedding_bags["a"].weight.requires_grad_(False)
    with pytest.raises(NotImplementedError, match="feature x is looked up in table b, which is trained"):
        ebc(batch())


def test_the_seed_decides_start_rows():
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        starts.append(bags().core.weight("a"))
    assert (starts[0] == starts[1]).all() and (starts[0] != starts[2]).any()
    starts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = tt.DistributedModelParallel(tt.EmbeddingBagCollection(configs(), device="meta"))
        starts.append(model.module.core.weight("a"))
    assert (starts[0] == starts[1]).all() and (starts[0] != starts[2]).any()


def _saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("of", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), _saved])
def test_copies_have_rows_states_and_flags(of):
    model = nn.ModuleDict({"e": bags(tessera.Optimizer("adam", learning_rate=0.1)), "over": nn.Linear(6, 1)})
    loss_of(model["e"](batch()).values()).backward()
    model["e"].embedding_bags["b"].weight.requires_grad_(False)
    other = of(model)
    assert not other["e"].embedding_bags["b"].weight.requires_grad and other["e"].core.steps == 1
    for one in (model, other):
        loss_of(one["e"](batch()).values()).backward()
    for mine, theirs in zip(model.parameters(), other.parameters()):
        assert torch.equal(mine, theirs) and mine.data_ptr() != theirs.data_ptr()
    with torch.no_grad():
        other["e"].embedding_bags["a"].weight.zero_()
    assert (other["e"].core.weight("a") == 0).all() and (model["e"].core.weight("a") != 0).any()


def test_averaged_models_and_shallow_copies():
    ebc = bags(SGD)
    averaged = AveragedModel(ebc)
    start = ebc.embedding_bags["a"].weight.detach().clone()
    averaged.update_parameters(ebc)
    ebc(batch()).values().sum().backward()
    averaged.update_parameters(ebc)
    mean = (start + ebc.embedding_bags["a"].weight.detach()) / 2
    torch.testing.assert_close(torch.from_numpy(averaged.module.core.weight("a")), mean)
    assert copy.copy(ebc).core is ebc.core
    with pytest.raises(RuntimeError, match="cannot be copied"):
        copy.deepcopy(tt.DistributedModelParallel(bags(SGD)))


def test_a_schedule_does_not_lag():
    table = tt.EmbeddingBagConfig(5, 4, "t", feature_names=["f"])
    sharders = [tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD, "learning_rate": 1.0})]
    model = tt.DistributedModelParallel(tt.EmbeddingBagCollection([table], device="meta"), sharders=sharders)
    model.load_state_dict({k: torch.zeros(5, 4) for k in model.state_dict()})
    optimizer = model.fused_optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 4)
    features, before, used = tt.KeyedJaggedTensor(["f"], torch.tensor([0]), lengths=torch.tensor([1])), 0.0, []
    for _ in range(5):
        optimizer.zero_grad()
        model(features).wait().values().sum().backward()
        optimizer.step()
        schedule.step()
        now = -float(model(features).values()[0, 0])
        used.append(now - before)
        before = now
    assert used == [0, 0.25, 0.5, 0.75, 1]


def test_tables_with_equal_optimizers_are_one_group():
    model = tt.DistributedModelParallel(bags(SGD))
    model.fused_optimizer.param_groups[0]["lr"] = 0.25
    model.fused_optimizer.step()
    assert [model.module.core.learning_rate(t) for t in "ab"] == [0.25, 0.25]
    torch.optim.lr_scheduler.LambdaLR(model.fused_optimizer, [lambda step: 0.5])
    ebc = bags()
    tt.apply_optimizer_in_backward(torch.optim.SGD, ebc.embedding_bags["a"].parameters(), {"lr": 0.5})
    tt.apply_optimizer_in_backward(torch.optim.SGD, ebc.embedding_bags["b"].parameters(), {"lr": 0.1})
    model = tt.DistributedModelParallel(ebc)
    model.fused_optimizer.param_groups[0]["lr"] = 0.25
    model.fused_optimizer.zero_grad()
    assert [model.module.core.learning_rate(t) for t in "ab"] == [0.25, 0.1]


def test_groups_of_fused_optimizers_have_rates_only():
    optimizer = tt.DistributedModelParallel(bags(SGD)).fused_optimizer
    with pytest.raises(NotImplementedError, match="takes no others"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    optimizer.param_groups[0]["weight_decay"] = 0.1
    with pytest.raises(NotImplementedError, match="weight_decay of a fused optimizer cannot be changed"):
        optimizer.step()


def test_optimizers_are_what_their_options_say():
    both = tt.KeyedJaggedTensor(["x"], torch.tensor([0, 1]), lengths=torch.tensor([2]))
    made = tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD, "momentum": 0.9}).optimizer
    assert made == tessera.Optimizer("sgd", learning_rate=0.01, momentum=0.9)
    for make, options in ((torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
                          (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
                          (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
                          (torch.optim.Adagrad, {"lr": 0.1, "weight_decay": 0.1, "eps": 1e-8})):  # fmt: skip
        one = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(2, 4, "a", feature_names=["x"])])
        plain = one.embedding_bags["a"].weight.detach().clone().requires_grad_()
        tt.apply_optimizer_in_backward(make, one.parameters(), options)
        theirs = make([plain], **options)
        for _ in range(3):
            theirs.zero_grad()
            one(both).values().pow(2).sum().backward()
            plain.sum(0).pow(2).sum().backward()
            theirs.step()
        torch.testing.assert_close(one.embedding_bags["a"].weight.detach(), plain.detach())
    with pytest.raises(NotImplementedError, match="give AdamW"):
        tt.apply_optimizer_in_backward(torch.optim.Adam, bags(), {"lr": 0.1, "weight_decay": 0.1})
    with pytest.raises(NotImplementedError, match="no maximize"):
        tt.apply_optimizer_in_backward(torch.optim.SGD, bags(), {"lr": 0.1, "maximize": True})
    with pytest.raises(NotImplementedError, match="bounds_check_mode"):
        tt.EmbeddingBagCollectionSharder({"bounds_check_mode": 3})


def test_a_second_backward_of_a_graph_is_pytorchs_error():
    ebc = bags(SGD)
    sequences = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "a", feature_names=["x"])], optimizer=SGD)
    for out in (ebc(batch()).values(), sequences(batch())["x"].values()):
        out.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            out.sum().backward()
    assert ebc.core.steps == sequences.core.steps == 1


def test_a_gradient_beside_the_optimizer_is_told():
    ebc = bags(SGD)
    with pytest.warns(UserWarning, match="table a is updated by its own optimizer.*weight directly"):
        (ebc(batch()).values().sum() + ebc.embedding_bags["a"].weight.square().sum()).backward()
    assert ebc.embedding_bags["a"].weight.grad is not None


def test_closures_compute_the_loss_once():
    model = tt.DistributedModelParallel(nn.ModuleDict({"e": bags(SGD), "over": nn.Linear(6, 1)}))
    dense = dict(tt.in_backward_optimizer_filter(model.named_parameters()))
    wrapped = tt.KeyedOptimizerWrapper(dense, lambda params: torch.optim.SGD(params, lr=0.1))
    both, calls = tt.CombinedOptimizer([model.fused_optimizer, wrapped]), []

    def closure():
        calls.append(1)
        both.zero_grad()
        loss = model.module["over"](model.module["e"](batch()).values()).sum()
        loss.backward()
        return loss

    before = [p.detach().clone() for p in model.parameters()]
    assert both.step(closure).requires_grad and len(calls) == 1
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert model.fused_optimizer.step(closure) is not None and len(calls) == 2


def test_names_of_combined_optimizers_keep_them_apart():
    parts = {name: nn.Linear(2, 2) for name in "ab"}

    def made(lr):
        return tt.CombinedOptimizer([
            (name, tt.KeyedOptimizerWrapper(dict(part.named_parameters()), lambda p: torch.optim.Adam(p, lr=lr)))
            for name, part in parts.items()])  # fmt: skip

    first, second = made(0.1), made(0.2)
    (parts["a"](torch.ones(1, 2)).sum() + 7 * parts["b"](torch.ones(1, 2)).sum()).backward()
    first.step()
    first.save_param_groups(True)
    state = copy.deepcopy(first.state_dict())
    second.load_state_dict(state)
    loaded = second.state_dict()
    for key, values in state["state"].items():
        assert torch.equal(values["exp_avg"], loaded["state"][key]["exp_avg"]), key
    assert [group["lr"] for group in second.param_groups] == [0.1, 0.1]
    third = made(0.1)
    third.load_state_dict(first.state_dict())
    first.step()
    for key, values in state["state"].items():
        assert torch.equal(values["exp_avg"], third.state_dict()["state"][key]["exp_avg"]), "the states are copies"


class Dense(nn.Module):
    """A collection with a dense part that has ties, buffers and, if asked, a parameter of its own."""

    def __init__(self, own=False):
        super().__init__()
        self.e, self.norm, self.over, self.other = bags(), nn.BatchNorm1d(6), nn.Linear(6, 1), nn.Linear(6, 1)
        self.other.weight = self.over.weight
        if own:
            self.factor = nn.Parameter(torch.ones(1))

    def forward(self, features):
        return self.over(self.norm(self.e(features).values())) + self.other(self.e(features).values())


def test_models_made_on_the_meta_device():
    with torch.device("meta"):
        model = Dense()
    assert all(parameter.is_meta for parameter in model.parameters())
    sharder = tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD})
    made = tt.DistributedModelParallel(model, sharders=[sharder])
    assert model.other.weight is model.over.weight and model.over.weight.abs().sum() > 0
    assert model.norm.running_mean.abs().sum() == 0 and made(batch()).shape == (2, 1)
    with torch.device("meta"):
        model = Dense(own=True)
    with pytest.warns(UserWarning, match="Dense was on the meta device and has no reset_parameters"):
        tt.DistributedModelParallel(model)
    described = tt.EmbeddingBagCollection(configs(), device="meta")
    assert described.reset_parameters() is None
    ebc = described.to_empty(device="cpu")
    before = ebc.core.weight("a")
    ebc.reset_parameters()
    after = ebc.core.weight("a")
    assert (before != after).any() and abs(after).max() <= 6**-0.5


def test_another_default_type():
    torch.set_default_dtype(torch.float64)
    try:
        ebc, trained = bags(), bags(SGD)
        for one in (ebc, trained):
            one(batch()).values().sum().backward()
        assert ebc.embedding_bags["a"].weight.grad[1].tolist() == [1.0] * 4
        assert torch.get_default_dtype() is torch.float64 and ebc(batch()).values().dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_collection_under_two_names_is_sharded_once():
    model = nn.ModuleDict({"e": bags(SGD)})
    model["f"] = model["e"]
    made = tt.DistributedModelParallel(model)
    assert model["e"] is model["f"] and type(model["e"]).__name__ == "ShardedEmbeddingBagCollection"
    before = model["e"](batch()).values()
    before.sum().backward()
    assert torch.equal(model["f"](batch()).values(), model["e"](batch()).values())
    assert sorted(made.state_dict()) == sorted(made.full_state_dict()) and len(made.state_dict()) == 4
    with pytest.raises(RuntimeError, match="the tables of e are sharded already"):
        tt.DistributedModelParallel(model)


def test_a_shared_weight_is_not_sharded():
    tables, linear = bags(), nn.Linear(4, 6, bias=False)
    linear.weight = tables.embedding_bags["a"].weight
    others = bags()
    others.embedding_bags["a"].weight = tables.embedding_bags["a"].weight
    for second, name in ((linear, "1.weight"), (others, "1.embedding_bags.a.weight")):
        with pytest.raises(NotImplementedError, match=f"0.embedding_bags.a.weight and {name} are one weight"):
            tt.DistributedModelParallel(nn.Sequential(tables, second))


@pytest.mark.parametrize("names, told", [(["y", "x", "x"], 'key "x" more than once'), (["y", "x"], "begin at 1")])
def test_batches_that_say_two_things(names, told):
    ids, counts = torch.tensor([3, 0, 1]), torch.arange(len(names) + 1).clamp(max=3)
    features = tt.KeyedJaggedTensor(names, ids, offsets=counts if len(names) == 3 else counts + 1)
    for optimizer in (None, SGD):
        with pytest.raises(ValueError, match=told):
            bags(optimizer)(features)


def test_jagged_tensors_that_do_not_go_together():
    one = tt.JaggedTensor(torch.tensor([1, 2]), lengths=torch.tensor([1, 1]))
    other = tt.JaggedTensor(torch.tensor([1]), lengths=torch.tensor([1]))
    weighted = tt.JaggedTensor(torch.tensor([1]), torch.tensor([0.5]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="needs inverse indices"):
        bags()(tt.KeyedJaggedTensor.from_jt_dict({"x": one, "y": other}))
    with pytest.raises(ValueError, match="weighted and unweighted"):
        tt.KeyedJaggedTensor.from_jt_dict({"x": one, "y": weighted})
    assert tt.KeyedJaggedTensor.from_jt_dict({}).keys() == []
    first = tt.KeyedJaggedTensor(["x"], torch.tensor([3, 0, 1]), lengths=torch.tensor([1, 2]),
                                 stride_per_key_per_rank=[[2]],
                                 inverse_indices=(["x"], torch.tensor([[0, 1, 0]])))  # fmt: skip
    second = tt.KeyedJaggedTensor(["y"], torch.tensor([2]), lengths=torch.tensor([1]), stride_per_key_per_rank=[[1]],
                                  inverse_indices=(["y"], torch.tensor([[0, 0, 0]])))  # fmt: skip
    both = tt.KeyedJaggedTensor.concat([first, second])
    ebc = bags()
    plain = tt.KeyedJaggedTensor(["x", "y"], torch.tensor([3, 0, 1, 3, 2, 2, 2]),
                                 lengths=torch.tensor([1, 2, 1, 1, 1, 1]))  # fmt: skip
    assert both.stride_per_key() == [2, 1] and torch.equal(ebc(both).values(), ebc(plain).values())
    with pytest.raises(ValueError, match="only some have inverse indices"):
        tt.KeyedJaggedTensor.concat([first, plain])
    half = tt.KeyedJaggedTensor(["x"], torch.tensor([1]), torch.ones(1), torch.tensor([1])).to("cpu", dtype=torch.half)
    assert half.weights().dtype is torch.half and half.values().dtype is torch.int64


def test_weights_of_an_unweighted_collection_are_refused():
    weighted = tt.KeyedJaggedTensor(["x"], torch.tensor([1]), torch.tensor([2.0]), torch.tensor([1]))
    ebc = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"])], optimizer=SGD)
    with pytest.raises(ValueError, match="not weighted: is_weighted=True lets it use weights"):
        ebc(weighted)


    with pytest.raises(ValueError, match="not weighted, and the features have weights"):
        tt._traced.pooled(ebc, weighted)


def test_outputs_have_the_models_type():
    model = nn.ModuleDict({"e": bags(SGD), "over": nn.Linear(6, 1)}).double()
    out = model["over"](model["e"](batch()).values())
    assert out.dtype is torch.float64 and model["e"].core.weight("a").dtype == "float32"
    out.sum().backward()
    assert bags(SGD).bfloat16()(batch()).values().dtype is torch.bfloat16
    with pytest.raises(NotImplementedError, match="stay on cpu"):
        bags(SGD).to("meta")
    made = tt.EmbeddingBagCollection(configs(), device="meta").to_empty(device="cpu")
    assert made(batch()).values().shape == (2, 6)


# ---- what programs put in the place of parameters


def test_rows_that_are_assigned_are_taken_over():
    for optimizer in (SGD, None):
        ebc = bags(optimizer)
        ebc.embedding_bags["a"].weight.data = torch.ones(6, 4)
        assert (ebc(batch())["x"] == torch.tensor([[2.0], [0.0]])).all() and (ebc.core.weight("a") == 1).all()
        ebc.embedding_bags["a"].weight = given = nn.Parameter(torch.full((6, 4), 2.0))
        assert (ebc(batch())["x"] == torch.tensor([[4.0], [0.0]])).all()
        ebc(batch())["x"].sum().backward()
        if optimizer is None:
            assert given.grad[1:3].tolist() == [[1.0] * 4] * 2
        else:
            assert given[1].tolist() == [1.5] * 4 and (ebc.core.weight("a")[1] == 1.5).all()
        ebc.load_state_dict({k: torch.full_like(v, 3) for k, v in ebc.state_dict().items()}, assign=True)
        assert (ebc(batch())["x"] == torch.tensor([[6.0], [0.0]])).all()
    model = tt.DistributedModelParallel(nn.ModuleDict({"e": bags(SGD)}))
    model.module["e"].embedding_bags["a"].weight.data = torch.ones(6, 4)
    assert (model.full_state_dict()["e.embedding_bags.a.weight"] == 1).all(), "before any lookup"
    with pytest.raises(ValueError, match=r"weight of table a has become \[5, 4\]"):
        ebc.embedding_bags["a"].weight.data = torch.ones(5, 4)
        ebc(batch())
    ebc.embedding_bags["a"] = nn.EmbeddingBag(6, 4)
    with pytest.raises(RuntimeError, match="place of table a has become another module, EmbeddingBag"):
        ebc(batch())


def test_tensors_that_stand_in_for_rows():
    ebc, ec = bags(), tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "c", feature_names=["x"])])
    twice = {name: (p.detach() * 2).requires_grad_() for name, p in ebc.named_parameters()}
    out = torch.func.functional_call(ebc, twice, (batch(),)).values()
    torch.testing.assert_close(out, 2 * ebc(batch()).values())
    out.sum().backward()
    assert twice["embedding_bags.a.weight"].grad[1:3].tolist() == [[1.0] * 4] * 2
    rows = torch.func.functional_call(ec, {"embeddings.c.weight": torch.ones(6, 4)}, (batch(),))["x"].values()
    assert (rows == 1).all() and not (ec(batch())["x"].values() == 1).any()
    with pytest.raises(NotImplementedError, match="have no optimizer of their own"):
        torch.func.functional_call(bags(SGD), twice, (batch(),))
    other = bags()
    other.embedding_bags["a"].weight = ebc.embedding_bags["a"].weight
    torch.testing.assert_close(other(batch())["x"], ebc(batch())["x"])
    other(batch())["x"].sum().backward()
    assert ebc.embedding_bags["a"].weight.grad[1].tolist() == [1.0] * 4


def test_places_are_pytorchs_modules():
    def init(module):
        if isinstance(module, (nn.EmbeddingBag, nn.Embedding)):
            nn.init.constant_(module.weight, 0.25)

    ebc, ec = bags(), tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "c", feature_names=["x"])])
    assert (ebc.apply(init)(batch())["x"] == torch.tensor([[0.5], [0.0]])).all()
    assert (ec.apply(init)(batch())["x"].values() == 0.25).all()
    assert (ebc.embedding_bags["a"](torch.tensor([1, 2]), torch.tensor([0, 2])) == 0.5).all()
    fused = bags(SGD)
    with pytest.raises(NotImplementedError, match="optimizer is the collection's"):
        fused.embedding_bags["a"](torch.tensor([1]), torch.tensor([0, 1]))
    with pytest.raises(NotImplementedError, match="cannot be shared among processes"):
        ebc.share_memory()
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (grad,) = torch.autograd.grad(ebc(batch()).values().square().sum(), [ebc.embedding_bags["a"].weight],
                                      create_graph=True)  # fmt: skip
        grad.sum().backward()


# ---- adopted models

IDS = torch.tensor([[1, 2], [3, 3]])


class Scaled(nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * 10


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8)
        self.out = nn.Linear(8, 20, bias=False)
        self.out.weight = self.e.weight

    def forward(self, ids):
        return self.out(self.e(ids))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = self.f = nn.Embedding(20, 8)

    def forward(self, ids):
        return self.e(ids) + self.f(ids)


def test_what_cannot_be_adopted_leaves_the_model_as_it_was():
    hooked = nn.Embedding(9, 8)
    hooked.register_forward_hook(lambda *_: None)
    for bad, told in ((Scaled(20, 8), "forward of its own"), (hooked, "hooks"),
                      (nn.Embedding(9, 8).double(), "float64"),
                      (nn.Embedding(9, 8, scale_grad_by_freq=True), "scale_grad_by_freq"),
                      (nn.EmbeddingBag(9, 8, mode="max"), "mode max")):  # fmt: skip
        model = nn.Sequential(nn.Embedding(20, 8), bad)
        first, data = model[0], model[0].weight.data_ptr()
        with pytest.raises(NotImplementedError, match=told):
            tt.adopt(model, SGD)
        assert model[0] is first and model[1] is bad and first.weight.data_ptr() == data
    with pytest.raises(ValueError, match="has a Embedding in it"):
        tt.adopt(nn.Embedding(3, 2), SGD)


def test_tied_weights_stay_tied():
    torch.manual_seed(5)
    model = Tied()
    ours = copy.deepcopy(model)
    weight = ours.out.weight
    tt.adopt(ours, SGD)
    assert ours.e.weight is weight is ours.out.weight
    for one in (model, ours, copy.deepcopy(ours)):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            one(IDS).square().sum().backward()
            optimizer.step()
        torch.testing.assert_close(one(IDS), model(IDS))
    tt.release(ours)
    assert ours.e.weight is weight is ours.out.weight
    torch.testing.assert_close(ours(IDS), model(IDS))


def test_one_module_under_two_names_stays_one():
    model = Twice()
    expected = model(IDS)
    assert tt.adopt(model, SGD) == ["e", "f"] and model.e is model.f
    torch.testing.assert_close(model(IDS), expected)
    model(IDS).sum().backward()
    assert tt.release(model) == ["e", "f"] and model.e is model.f and type(model.e) is nn.Embedding
    both = nn.ModuleDict({"e": nn.Embedding(20, 8), "f": nn.Embedding(20, 8)})
    both["f"].weight = both["e"].weight
    tt.adopt(both, SGD)
    assert both["e"] is both["f"]
    unlike = nn.ModuleDict({"e": nn.Embedding(20, 8), "f": nn.EmbeddingBag(20, 8, mode="sum")})
    unlike["f"].weight = unlike["e"].weight
    with pytest.raises(NotImplementedError, match="one table cannot be both"):
        tt.adopt(unlike, SGD)


def test_frozen_weights_stay_frozen_when_adopted():
    model = nn.Sequential(nn.Embedding.from_pretrained(torch.ones(20, 8)), nn.Linear(8, 1))
    tt.adopt(model, SGD)
    model(IDS).sum().backward()
    assert (model[0].core.weight("0") == 1).all() and not model[0].weight.requires_grad


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"max_norm": 0.5}, {"padding_idx": 2, "max_norm": 1.0}])
def test_options_of_pytorchs_modules(options):
    torch.manual_seed(8)
    model = nn.ModuleDict({"e": nn.Embedding(9, 4, **options), "b": nn.EmbeddingBag(9, 4, mode="mean", **options),
                           "s": nn.EmbeddingBag(9, 4, mode="sum", include_last_offset=True, **options)})  # fmt: skip
    ours = copy.deepcopy(model)
    tt.adopt(ours, SGD)

    def step(of):
        flat, ends = torch.tensor([1, 3, 2, 2]), torch.tensor([0, 1, 4])
        return torch.cat([of["e"](IDS).sum(1), of["b"](IDS), of["s"](flat, ends)], 1).pow(2).sum()

    theirs = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        one, two = step(model), step(ours)
        torch.testing.assert_close(one, two)
        theirs.zero_grad()
        one.backward()
        theirs.step()
        two.backward()
    tt.release(ours)
    for mine, expected in zip(ours.parameters(), model.parameters()):
        torch.testing.assert_close(mine, expected)


def test_an_adopted_embedding_takes_no_ids():
    model = nn.ModuleDict({"e": nn.Embedding(9, 4, padding_idx=1), "b": nn.EmbeddingBag(9, 4, mode="sum")})
    none = torch.empty(2, 0, dtype=torch.int64)
    rows, empty = model["e"](none).shape, torch.empty(0, dtype=torch.int64)
    bag = model["b"](empty, torch.tensor([0, 0]))
    tt.adopt(model, SGD)
    assert model["e"](none).shape == rows and model["b"](none).tolist() == [[0] * 4] * 2
    assert torch.equal(model["b"](empty, torch.tensor([0, 0])), bag)


# ---- names and texts

def test_results_that_may_be_waited_for():
    ebc = bags(SGD)
    assert ebc(batch()).wait().keys() == ["x", "y"]
    ec = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "a", feature_names=["x"])])
    assert list(ec(batch()).wait()) == ["x"]

    class Later(tt.LazyAwaitable[torch.Tensor]):
        def _wait_impl(self):
            return torch.ones(3)

    later = Later()
    assert (torch.add(later, 1) == 2).all() and later.shape == (3,) and (2 * later)[0] == 2 and len(later) == 3
    assert (abs(-later) == 1).all()
    assert tt.NoWait(4).wait() == 4


def test_jagged_tensors_are_trees_with_their_weights_in_the_text():
    features = tt.KeyedJaggedTensor(["x", "y"], torch.tensor([1, 2]), torch.tensor([0.5, 2.0]), torch.tensor([1, 1]))
    assert '"weights": [[0.5]]' in str(features) and '"values": [[1]]' in str(features)
    doubled = torch.utils._pytree.tree_map(lambda t: t * 2, features)
    assert doubled.keys() == ["x", "y"] and doubled.values().tolist() == [2, 4] and doubled.weights().tolist() == [1, 4]
    leaves, spec = torch.utils._pytree.tree_flatten([features, features["x"]])
    again = torch.utils._pytree.tree_unflatten(leaves, spec)
    assert again[0].lengths().tolist() == [1, 1] and again[1].values().tolist() == [1]


def test_quantize_dynamic_makes_quantized_collections():
    from torch.ao.quantization import PlaceholderObserver, QConfig, quantize_dynamic

    observed = QConfig(*(PlaceholderObserver.with_args(dtype=kind) for kind in (torch.float, torch.qint8)))
    model = nn.ModuleDict({"e": bags(SGD), "over": nn.Linear(6, 1)})
    made = quantize_dynamic(model, {tt.EmbeddingBagCollection: observed},
                            mapping={tt.EmbeddingBagCollection: tt.QuantEmbeddingBagCollection})  # fmt: skip
    assert isinstance(made["e"], tt.QuantEmbeddingBagCollection) and isinstance(made["over"], nn.Linear)
    torch.testing.assert_close(made["e"](batch()).values(), model["e"](batch()).values(), rtol=0.02, atol=0.01)


class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.over = bags(), nn.Linear(6, 1)

    def forward(self, dense, ids, lengths):
        features = tt.KeyedJaggedTensor(["y", "x"], ids, lengths=lengths)
        return self.over(self.e(features).values() * dense)


@pytest.mark.filterwarnings("ignore")
def test_exported_and_traced_models_need_no_library():
    model, dense = Scored().eval(), torch.rand(2, 6)
    first = (torch.tensor([3, 0, 1, 1, 2]), torch.tensor([1, 2, 2, 0]))
    other = (torch.tensor([1, 1, 3, 2, 0, 4, 5]), torch.tensor([3, 0, 1, 3]))
    traced = torch.jit.trace(model, (dense, *first))
    torch.testing.assert_close(traced(dense, *other), model(dense, *other))
    if not hasattr(torch.compiler, "is_exporting"):
        return  # an older PyTorch, whose torch.export is refused
    made = torch.export.export(model, (dense, *first))
    file = io.BytesIO()
    torch.export.save(made, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(dense, *first), model(dense, *first))
    torch.testing.assert_close(tt._traced.pooled(model.e, batch()).values(), model.e(batch()).values())


ON_TWO_RANKS = "ddp shards states keyed dense clip refused starts tutorial rank0".split()


@pytest.mark.parametrize("what", ON_TWO_RANKS)
@pytest.mark.parametrize("backend", ["gloo", "tessera"])
def test_rows_on_two_ranks(what, backend, tmp_path):
    if what == "clip" and not hasattr(nn.utils.clip_grad, "_get_total_norm"):
        pytest.skip("this PyTorch's clip_grad_norm_ is refused over sharded tables")
    assert "all right" in run_ranks("rows.py", backend, what, tmp_path, timeout=300)


def test_checkpoints_are_torchrecs_both_ways(tmp_path):
    pytest.importorskip("torchrec")
    for who in ("torchrec", "tessera"):
        saved = run_ranks("rows.py", "gloo", f"save-{who}", tmp_path / who, timeout=300)
        assert "all right" in saved
        for other in ("torchrec", "tessera"):
            for ranks in (1, 2):
                told = run_ranks("rows.py", "gloo", f"load-{other}", tmp_path / who, ranks=ranks, ends=[0] * ranks)
                assert "all right" in told


@pytest.mark.parametrize("saved, loaded", [(1, 2), (2, 3), (3, 1)])
def test_checkpoints_on_other_numbers_of_ranks(saved, loaded, tmp_path):
    for ranks, what in ((saved, "save"), (loaded, "load")):
        told = run_ranks("rows.py", "gloo", f"{what}-tessera", tmp_path, ranks=ranks, ends=[0] * ranks)
        assert "all right" in told
