"""tessera.torch on one rank and on two: autograd, state dicts, adopted models, and TorchRec beside it where it is."""

import copy
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

HERE = Path(__file__).resolve().parent
SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)


def run_ranks(script, *arguments, ranks=2, timeout=600, ends=(0, 0), tell=None):
    """The output of rank 0; all ranks are started as by torchrun. tell: called with each of its lines when it comes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started, kept = [], [tempfile.TemporaryFile("w+") for _ in range(1, ranks)]  # no pipe that fills unread
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")  # fmt: skip
        command = [sys.executable, str(HERE / script), *[str(a) for a in arguments]]
        out = kept[rank - 1] if rank else subprocess.PIPE
        started.append(subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT, text=True))
    end = threading.Timer(timeout, lambda: [rank.kill() for rank in started])
    end.start()
    try:
        told = []
        for line in started[0].stdout:
            told.append(line)
            if tell is not None:
                tell(line)
        codes = [rank.wait() for rank in started]
        for file in kept:
            file.seek(0)
        assert codes == list(ends)[:ranks], "\n".join(["".join(told), *(file.read() for file in kept)])
        return "".join(told)
    finally:
        end.cancel()
        for rank in started:
            rank.kill()
            rank.wait()
        started[0].stdout.close()
        for file in kept:
            file.close()


def bags(**options):
    configs = [
        tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"]),
        tt.EmbeddingBagConfig(4, 2, "b", feature_names=["y"], pooling=tt.PoolingType.MEAN),
    ]
    return tt.EmbeddingBagCollection(configs, optimizer=SGD, **options)


def batch():
    ids, lengths = torch.tensor([3, 0, 1, 1, 2]), torch.tensor([1, 2, 2, 0])
    return tt.KeyedJaggedTensor.from_lengths_sync(["y", "x"], ids, lengths)


def test_numbers_are_those_of_embedding_bag():
    ebc = bags()
    a, b = (ebc.state_dict()[f"embedding_bags.{t}.weight"].clone().requires_grad_() for t in "ab")
    bag = torch.nn.functional.embedding_bag
    x = bag(torch.tensor([1, 2]), a, torch.tensor([0, 2]), mode="sum")
    y = bag(torch.tensor([3, 0, 1]), b, torch.tensor([0, 1]), mode="mean")
    out = ebc(batch())
    assert out.keys() == ["x", "y"] and out.length_per_key() == [4, 2]
    torch.testing.assert_close(out.values(), torch.cat([x, y], 1))
    (out["x"] ** 2).sum().add((out["y"] ** 3).sum()).backward()
    ((x**2).sum() + (y**3).sum()).backward()
    now = ebc.state_dict()
    torch.testing.assert_close(now["embedding_bags.a.weight"], (a - 0.5 * a.grad).detach())
    torch.testing.assert_close(now["embedding_bags.b.weight"], (b - 0.5 * b.grad).detach())


def test_sequences_are_those_of_embedding():
    ec = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "a", feature_names=["x", "z"])], optimizer=SGD)
    weight = ec.state_dict()["embeddings.a.weight"].clone().requires_grad_()
    ids, lengths = torch.tensor([5, 1, 5, 0]), torch.tensor([2, 1, 0, 1])
    out = ec(tt.KeyedJaggedTensor.from_lengths_sync(["x", "z"], ids, lengths))
    rows = torch.nn.functional.embedding(ids, weight)
    torch.testing.assert_close(torch.cat([out["x"].values(), out["z"].values()]), rows)
    assert out["x"].lengths().tolist() == [2, 1] and out["z"].lengths().tolist() == [0, 1]
    (out["x"].values() ** 2).sum().backward()  # z has no gradient
    (rows[:3] ** 2).sum().backward()
    torch.testing.assert_close(ec.state_dict()["embeddings.a.weight"], (weight - 0.5 * weight.grad).detach())


def test_sequences_bring_their_ids_where_they_are_needed():
    both = tt.EmbeddingConfig(6, 4, "a", feature_names=["x", "y"])
    configs = [both, tt.EmbeddingConfig(5, 4, "b", feature_names=["x"])]
    ec = tt.EmbeddingCollection(configs, need_indices=True)
    quantized, sharded = tt.quantize(ec, torch.float16), tt.DistributedModelParallel(torch.nn.ModuleDict({"e": ec}))
    for made in (ec, quantized, sharded.module["e"]):
        out = made(batch())
        assert made is ec or list(out) == ["x@a", "y", "x@b"]
        assert out["y"].weights().tolist() == [3, 0, 1] and out["x@a"].weights().tolist() == [1, 2]
        assert torch.equal(out["x@b"].weights(), out["x@a"].weights()) and out["y"].lengths().tolist() == [1, 2]
    with pytest.raises(ValueError, match="no weights"):
        tt.EmbeddingCollection(configs)(batch())["y"].weights()


def test_without_gradients_nothing_is_kept():
    ebc = bags()
    with torch.no_grad():
        out = ebc(batch()).values()
    assert not out.requires_grad
    torch.testing.assert_close(out, ebc(batch()).values())


def test_state_dicts_load_and_are_checked():
    ebc, other = torch.nn.ModuleDict({"sparse": bags()}), torch.nn.ModuleDict({"sparse": bags()})
    state = {key: torch.randn_like(value) for key, value in ebc.state_dict().items()}
    assert list(state) == ["sparse.embedding_bags.a.weight", "sparse.embedding_bags.b.weight"]
    other.load_state_dict(state)
    for key, value in other.state_dict().items():
        assert torch.equal(value, state[key])
    with pytest.raises(RuntimeError, match=r"\[6, 4\]"):
        other.load_state_dict({**state, "sparse.embedding_bags.a.weight": torch.zeros(5, 4)})
    with pytest.raises(RuntimeError, match="Missing key.*embedding_bags.b.weight"):
        other.load_state_dict({"sparse.embedding_bags.a.weight": torch.zeros(6, 4)})
    assert other.load_state_dict({}, strict=False)


def test_keyed_tensors_regroup_with_gradients():
    values = torch.arange(6.0).reshape(1, 6).requires_grad_()
    one = tt.KeyedTensor(["a", "b"], [2, 1], values[:, :3])
    two = tt.KeyedTensor(["c"], [3], values[:, 3:])
    first, second = tt.KeyedTensor.regroup([one, two], [["c", "a"], ["b"]])
    assert first.tolist() == [[3, 4, 5, 0, 1]] and second.tolist() == [[2]]
    first.sum().backward()
    assert values.grad.tolist() == [[1, 1, 0, 1, 1, 1]]
    with pytest.raises(KeyError, match="there is no key d"):
        tt.KeyedTensor.regroup([one], [["d"]])


def test_keys_of_keyed_tensors_share_one_backward():
    start = torch.arange(12.0).reshape(2, 6).requires_grad_()
    keyed = tt.KeyedTensor(["a", "b", "c"], [1, 2, 3], start * 1)
    with torch.no_grad():
        assert keyed["a"].grad_fn is None
    a, b = keyed["a"], keyed["b"]
    assert a.grad_fn is b.grad_fn and a.grad_fn is not None  # a slice for each key would have its own
    assert b.tolist() == [[1, 2], [7, 8]] and b.data_ptr() == keyed.values()[:, 1:].data_ptr()
    (2 * a).sum().backward(retain_graph=True)
    (3 * keyed["b"] * keyed["b"].detach()).sum().backward()
    assert start.grad.tolist() == [[2, 3, 6, 0, 0, 0], [2, 21, 24, 0, 0, 0]]
    keyed.values().mul_(2)  # parts that were made before are not taken
    assert keyed["c"].tolist() == [[6, 8, 10], [18, 20, 22]]
    with pytest.raises(RuntimeError, match="inplace"):
        keyed["c"].relu_()
    assert copy.copy(keyed)["c"].tolist() == keyed["c"].tolist()
    with pytest.raises(KeyError, match="there is no key d"):
        keyed["d"]
    assert pickle.loads(pickle.dumps(tt.KeyedTensor(["a"], [2], torch.ones(1, 2))))["a"].tolist() == [[1, 1]]
    part = tt.KeyedTensor(["a", "b"], [1, 2], start * 1)  # the values have more
    assert part["b"].tolist() == [[1, 2], [7, 8]] and part["b"].grad_fn is not None


@pytest.mark.parametrize("samples", [1, 3])
def test_gradients_beside_each_other_are_not_copied(samples):
    start, lengths = torch.randn(samples, 6).requires_grad_(), [1, 2, 3]
    given, wanted = [], torch.randn(samples, 9)
    values = start * 1
    values.register_hook(given.append)
    keyed = tt.KeyedTensor(list("abc"), lengths, values)
    low = torch.randn(samples, 3)
    torch.cat([low, *(keyed[key] for key in "abc")], 1).backward(wanted, retain_graph=True)
    assert torch.equal(given[0], wanted[:, 3:]) and given[0].data_ptr() == wanted[:, 3:].data_ptr()
    for order in ("acb", "ab", "c", "bca", "aabc"):  # these are copied, and all have the same gradients as slices
        start.grad, begins = None, {"a": (0, 1), "b": (1, 2), "c": (3, 3)}
        joined = torch.cat([keyed[key] for key in order], 1)
        out = torch.randn_like(joined)
        joined.backward(out, retain_graph=True)
        found, start.grad = start.grad, None
        torch.cat([values.narrow(1, *begins[key]) for key in order], 1).backward(out, retain_graph=True)
        assert torch.equal(found, start.grad)
    parts = [torch.randn(samples, n) for n in lengths]
    torch.autograd.backward([keyed[key] for key in "abc"], parts, retain_graph=True)
    assert torch.equal(given[-1], torch.cat(parts, 1))
    (twice,) = torch.autograd.grad((keyed["b"] ** 3).sum(), start, create_graph=True)
    (second,) = torch.autograd.grad(twice.sum(), start)
    assert torch.allclose(second[:, 1:3], 6 * start[:, 1:3]) and not second[:, [0, 3, 4, 5]].any()


def test_jagged_tensors():
    kjt = batch()
    assert kjt.stride() == 2 and kjt.length_per_key() == [3, 2] and kjt.offsets().tolist() == [0, 1, 3, 5, 5]
    assert [v.tolist() for v in kjt["y"].to_dense()] == [[3], [0, 1]]
    assert kjt.permute([1, 0]).values().tolist() == [1, 2, 3, 0, 1]
    assert [part.keys() for part in kjt.split([1, 1])] == [["y"], ["x"]]
    assert kjt["y"].to_padded_dense(1, -1.0).tolist() == [[3], [0]]
    assert kjt["x"].to_padded_dense(3).tolist() == [[1, 2, 0], [0, 0, 0]]
    again = tt.KeyedJaggedTensor.concat([part for part in kjt.split([1, 1])])
    assert again.lengths().tolist() == kjt.lengths().tolist()


def test_what_follows_from_jagged_tensors():
    kjt = batch()
    assert kjt.index_per_key() == {"y": 0, "x": 1} and kjt.lengths_offset_per_key() == [0, 2, 4]
    assert kjt.length_per_key_or_none() is None and kjt.offset_per_key_or_none() is None
    assert kjt.sync() is kjt and kjt.length_per_key_or_none() == [3, 2] and kjt.offset_per_key_or_none() == [0, 3, 5]
    assert kjt.unsync().length_per_key_or_none() is None
    square = tt.KeyedJaggedTensor(["y", "x"], kjt.values(), lengths=kjt.lengths().reshape(2, 2))
    assert torch.equal(square.flatten_lengths().lengths(), kjt.lengths())
    assert kjt.size_in_bytes() == 8 * (5 + 4) and kjt["y"].size_in_bytes() == 8 * (3 + 2)
    assert tt.KeyedJaggedTensor.empty(is_weighted=True).weights().numel() == 0
    assert tt.KeyedJaggedTensor.empty().keys() == [] and tt.JaggedTensor.empty().to_dense() == []
    uneven = tt.KeyedJaggedTensor(["y", "x"], kjt.values(), lengths=torch.tensor([1, 2, 2]), stride_per_key=[2, 1])
    assert uneven.variable_stride_per_key() and uneven.length_per_key() == [3, 2] and uneven.stride() == 2
    dense = torch.tensor([[1, 2, 3], [4, 5, 6]])
    jagged = tt.JaggedTensor.from_dense_lengths(dense, torch.tensor([1, 3]), dense.float())
    assert jagged.values().tolist() == [1, 4, 5, 6] and jagged.weights().tolist() == [1, 4, 5, 6]
    assert tt.KeyedTensor(["a"], [2], torch.zeros(3, 2), 1, [0, 2], {"a": 0}).size_in_bytes() == 24


def test_a_planner_is_told_what_torchrecs_is():
    class Reservation:
        _percentage = 0.5

    made = tt.EmbeddingShardingPlanner(tt.Topology(2), debug=True, timeout_seconds=3, storage_reservation=Reservation())
    assert made._planner.reserved_percentage == 0.5 and made._planner.time_limit_s == 3
    with pytest.raises(NotImplementedError, match="str has no counterpart"):
        tt.EmbeddingShardingPlanner(tt.Topology(2), storage_reservation="much")
    assert tt.EmbeddingShardingPlanner(tt.Topology(2), proposer=None)
    with pytest.raises(NotImplementedError, match="proposer has no counterpart"):
        tt.EmbeddingShardingPlanner(tt.Topology(2), proposer=object())


def test_a_model_is_adopted_and_released():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"bag": torch.nn.EmbeddingBag(9, 4, mode="sum"), "row": torch.nn.Embedding(5, 4)})
    reference = torch.nn.ModuleDict({"bag": torch.nn.EmbeddingBag(9, 4, mode="sum"), "row": torch.nn.Embedding(5, 4)})
    reference.load_state_dict(model.state_dict())
    ids, rows, weights = torch.tensor([[1, 8], [3, 3]]), torch.tensor([[0, 4]]), torch.rand(2, 2)

    def loss(of):
        return (of["bag"](ids, per_sample_weights=weights) ** 2).sum() + (of["row"](rows) ** 3).sum()

    assert tt.adopt(model, SGD) == ["bag", "row"]
    torch.testing.assert_close(loss(model), loss(reference))
    loss(model).backward()
    loss(reference).backward()
    assert tt.release(model) == ["bag", "row"] and type(model["bag"]) is torch.nn.EmbeddingBag
    for mine, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(mine, theirs - 0.5 * theirs.grad)


def test_schedulers_reach_fused_optimizers(tmp_path):
    model = tt.DistributedModelParallel(torch.nn.ModuleDict({"sparse": bags(device="meta")}))
    optimizer = model.fused_optimizer
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    model.module["sparse"](batch()).values().sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.step()
    assert model.module["sparse"].core.learning_rate("a") == pytest.approx(0.05)
    model.save(tmp_path / "saved", "here")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.load(tmp_path / "saved") == "here"
    other = tt.DistributedModelParallel(torch.nn.ModuleDict({"sparse": bags(device="meta")}))
    with pytest.warns(UserWarning, match=r"table a was saved with the learning rate 0.05 and goes on with 0.5"):
        other.load(tmp_path / "saved")


def test_a_checkpoint_has_the_dense_part(tmp_path):
    def made(seed):
        torch.manual_seed(seed)
        parts = {"sparse": bags(device="meta"), "over": torch.nn.Linear(6, 2), "norm": torch.nn.BatchNorm1d(2)}
        return tt.DistributedModelParallel(torch.nn.ModuleDict(parts), seed=seed)

    one, two = made(1), made(2)
    one.module["norm"](one.module["over"](one.module["sparse"](batch()).values()))
    one.save(tmp_path / "saved")
    two.load(tmp_path / "saved")
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key]), key
    assert two.module["norm"].num_batches_tracked == 1


def test_states_of_fused_optimizers():
    def made():
        ebc = bags(device="meta")
        tt.apply_optimizer_in_backward(torch.optim.Adam, ebc, {"lr": 0.1, "betas": (0.8, 0.9)})
        return tt.DistributedModelParallel(torch.nn.ModuleDict({"sparse": ebc}))

    one, two = made(), made()
    one.module["sparse"](batch()).values().sum().backward()
    state = one.fused_optimizer.state_dict()
    assert set(state["state"]["sparse.embedding_bags.a.weight"]) == {"a.momentum1", "a.momentum2", "a.step"}
    two.load_state_dict(one.state_dict())
    two.fused_optimizer.load_state_dict(state)
    for model in (one, two):
        model.module["sparse"](batch()).values().sum().backward()
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key])
    plain = tt.DistributedModelParallel(torch.nn.ModuleDict({"sparse": bags()})).fused_optimizer
    with pytest.raises(ValueError, match="a.momentum1 of sparse.embedding_bags.a.weight, which is another optimizer's"):
        plain.load_state_dict(state)
    for optimizer in (plain, tt.CombinedOptimizer([plain])):
        with pytest.raises(ValueError, match="a state of sparse.embedding_bags.q.weight, which"):
            optimizer.load_state_dict({"state": {"sparse.embedding_bags.q.weight": {}}})


class Compiled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bags, self.under = bags(), torch.nn.Linear(3, 6)
        self.rows = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 6, "c", feature_names=["x"])], optimizer=SGD)

    def forward(self, dense, features):
        mixed = torch.relu(self.under(dense)) * self.bags(features).values()
        return mixed * self.rows(features)["x"].values().sum() + 1


def test_a_compiled_model_trains():
    torch.manual_seed(6)
    model, dense = Compiled(), torch.randn(2, 3)
    with torch.no_grad():
        expected = model(dense, batch())
    compiled, before = torch.compile(model, backend="aot_eager"), copy.deepcopy(model.state_dict())
    out = compiled(dense, batch())
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    after = model.state_dict()
    assert all(not torch.equal(before[key], after[key]) for key in before if "embedding" in key)
    torch.testing.assert_close(compiled(dense, batch()), model(dense, batch()))
    torch._dynamo.reset()


def test_what_has_no_counterpart_is_named():
    with pytest.raises(NotImplementedError, match="cuda"):
        bags(device="cuda")
    with pytest.raises(NotImplementedError, match="Adamax"):
        tt.apply_optimizer_in_backward(torch.optim.Adamax, bags(), {})
    with pytest.raises(NotImplementedError, match="scale_grad_by_freq of e"):
        tt.adopt(torch.nn.ModuleDict({"e": torch.nn.Embedding(3, 2, scale_grad_by_freq=True)}), SGD)
    with pytest.raises(RuntimeError, match="meta device"):
        bags(device="meta")(batch())


@pytest.mark.parametrize("backend", ["gloo", "tessera"])
def test_two_ranks_train_a_dense_part_too(backend):
    assert "all equal" in run_ranks("parallel.py", backend)


@pytest.mark.parametrize("what", ["collectives", "messages", "ddp", "adopted", "checkpoint", "weights", "wrong"])
def test_torch_distributed_over_our_transports(what, tmp_path):
    assert "all right" in run_ranks("backend.py", what, tmp_path / "saved", timeout=300)


@pytest.mark.parametrize("what", ["killed", "killed-before-its-message"])
def test_a_killed_rank_is_named(what):
    told = run_ranks("backend.py", what, timeout=300, ends=[0, -9])
    assert "told: " in told and "rank 1" in told.split("told: ")[1], told


class Model(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(4)
        self.sparse = bags(**options)
        self.over = torch.nn.Linear(6, 1)

    def forward(self, features):
        out = self.over(self.sparse(features).values())
        return (out**2).mean().reshape(1), out.detach()


def batches(n):
    generator = torch.Generator().manual_seed(8)
    for _ in range(n):
        ids = torch.randint(0, 4, (5,), generator=generator)
        yield tt.KeyedJaggedTensor.from_lengths_sync(["y", "x"], ids, torch.tensor([1, 2, 2, 0]))


@pytest.mark.parametrize("kind", [tt.TrainPipelineBase, tt.TrainPipelineSparseDist])
def test_pipelines_train_as_a_loop_does(kind):
    model, reference = Model(), Model()
    optimizer, theirs = (torch.optim.SGD(m.over.parameters(), lr=0.1) for m in (model, reference))
    expected = []
    for features in batches(5):
        theirs.zero_grad()
        loss, out = reference(features)
        loss.sum().backward()
        theirs.step()
        expected.append(out)
    pipeline, source, outputs = kind(model, optimizer, "cpu"), iter(batches(5)), []
    with pytest.raises(StopIteration):
        while True:
            outputs.append(pipeline.progress(source))
    with pytest.raises(StopIteration):
        pipeline.progress(source)
    assert len(outputs) == 5 and all(torch.equal(a, b) for a, b in zip(outputs, expected))
    for key, value in reference.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key
    model.eval()
    assert torch.equal(pipeline.progress(iter(batches(1))), reference(next(batches(1)))[1])
    evaluated = tt.EvalPipelineSparseDist(model, optimizer, "cpu").progress(iter(batches(1)))
    assert torch.equal(evaluated, reference(next(batches(1)))[1])
    with pytest.raises(NotImplementedError, match="cuda"):
        kind(model, optimizer, "cuda")


def collated(samples):
    ids = torch.tensor([[sample % 4, sample % 3] for sample in samples]).t().reshape(-1)
    return tt.KeyedJaggedTensor(["y", "x"], ids, lengths=torch.ones(2 * len(samples), dtype=torch.int64))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_data_loader_has_workers():
    """They are forked from a process whose tables are in use, and make batches beside it."""
    model, reference = (torch.manual_seed(2) and bags() for _ in range(2))
    outputs = []
    for tables, workers in ((reference, 0), (model, 2)):
        tables(batch()).values().sum().backward()
        loader = torch.utils.data.DataLoader(range(7), batch_size=2, num_workers=workers, collate_fn=collated)
        for features in loader:
            outputs.append(tables(features).values())
            outputs[-1].sum().backward()
    assert len(outputs) == 8 and all(torch.equal(a, b) for a, b in zip(outputs[:4], outputs[4:]))
    for key, value in reference.state_dict().items():
        assert torch.equal(model.state_dict()[key], value), key


def test_a_pipeline_passes_on_what_its_batches_raise():
    def broken():
        yield from batches(1)
        raise ValueError("the file is damaged")

    model = Model()
    pipeline, source = tt.TrainPipelineSparseDist(model, torch.optim.SGD(model.over.parameters(), lr=0.1)), broken()
    pipeline.progress(source)
    with pytest.raises(ValueError, match="the file is damaged"):
        pipeline.progress(source)


def test_optimizers_are_combined():
    def made():
        model = tt.DistributedModelParallel(Model(device="meta"))
        dense = tt.KeyedOptimizerWrapper(
            dict(tt.in_backward_optimizer_filter(model.named_parameters())),
            lambda params: torch.optim.Adam(params, lr=0.1),
        )
        return model, tt.CombinedOptimizer([model.fused_optimizer, ("dense", dense)])

    def train(model, optimizer, features):
        optimizer.zero_grad()
        model(features)[0].sum().backward()
        optimizer.step()

    (one, first), (two, second) = made(), made()
    schedule = torch.optim.lr_scheduler.StepLR(first, 1, gamma=0.5)
    train(one, first, next(batches(1)))
    schedule.step()
    assert set(first.state_dict()) == {"state"}
    first.save_param_groups(True)
    saved = copy.deepcopy(first.state_dict())
    of_groups = [[f"sparse.embedding_bags.{t}.weight" for t in "ab"], ["dense.over.weight", "dense.over.bias"]]
    assert [group["params"] for group in saved["param_groups"]] == of_groups
    assert saved["state"]["dense.over.bias"]["step"] == 1
    assert [group["lr"] for group in first.param_groups] == [0.25, 0.05]
    train(two, second, next(batches(1)))
    two.load_state_dict(one.state_dict())
    second.load_state_dict(saved)
    for model, optimizer in ((one, first), (two, second)):
        train(model, optimizer, next(batches(1)))
    assert one.module.sparse.core.learning_rate("a") == two.module.sparse.core.learning_rate("a") == 0.25
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key]), key
    with pytest.raises(TypeError, match="KeyedOptimizerWrapper"):
        tt.CombinedOptimizer([torch.optim.SGD(one.parameters(), lr=0.1)])
    with pytest.raises(ValueError, match="over.bias"):
        tt.KeyedOptimizerWrapper({"over.weight": one.module.over.weight}, lambda p: torch.optim.SGD(p, 0.1)
                                 ).load_state_dict(second.optimizers[1][1].state_dict())  # fmt: skip
    with pytest.raises(ValueError, match="over.bias"):
        second.load_state_dict({"state": {k: v for k, v in saved["state"].items() if k != "dense.over.bias"}})


def test_weights_of_ids_have_gradients():
    configs = [
        tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x", "z"]),
        tt.EmbeddingBagConfig(4, 2, "b", feature_names=["z"]),
    ]
    ebc = tt.EmbeddingBagCollection(configs, is_weighted=True, optimizer=SGD)
    a, b = (ebc.state_dict()[f"embedding_bags.{t}.weight"].clone().requires_grad_() for t in "ab")
    weights, theirs = (torch.tensor([0.5, 2.0, -1.0, 3.0, 0.1, 1.0]).requires_grad_() for _ in range(2))
    ids, lengths = torch.tensor([3, 0, 1, 1, 2, 5]), torch.tensor([1, 2, 2, 1])  # z: [3], [0, 1]; x: [1, 2], [5]
    bag = torch.nn.functional.embedding_bag
    z, x = (ids[:3], torch.tensor([0, 1]), theirs[:3]), (ids[3:], torch.tensor([0, 2]), theirs[3:])
    parts = [bag(i, w, o, mode="sum", per_sample_weights=p) for w, (i, o, p) in ((a, x), (a, z), (b, z))]
    expected = torch.cat(parts, 1)
    out = ebc(tt.KeyedJaggedTensor(["z", "x"], ids, weights, lengths=lengths)).values()
    torch.testing.assert_close(out, expected)
    (out**2).sum().backward()
    (expected**2).sum().backward()
    torch.testing.assert_close(weights.grad, theirs.grad)
    torch.testing.assert_close(ebc.state_dict()["embedding_bags.a.weight"], (a - 0.5 * a.grad).detach())


def test_quantized_models_infer():
    model = Model()
    for table, scale in (("a", 1.0), ("b", 100.0)):
        rows, dim = model.sparse.core.tables[table]
        model.sparse.core.set_weight(table, scale * np.arange(rows * dim).reshape(rows, dim))
    features = next(batches(1))
    expected = model(features)[1]
    quantized = tt.quantize(model, torch.float16)
    assert isinstance(quantized.sparse, tt.QuantEmbeddingBagCollection) and quantized.over is not model.over
    assert torch.equal(quantized(features)[1], expected)  # these values are halves
    assert quantized.sparse.core.bytes == 2 * (24 + 8)
    coarse = tt.quantize(model, torch.int8, per_table_weight_dtype={"b": torch.float16})
    out, exact = coarse.sparse(features), model.sparse(features)
    assert out.keys() == exact.keys() and torch.equal(out["y"], exact["y"])
    assert not torch.equal(out["x"], exact["x"])
    torch.testing.assert_close(out["x"], exact["x"], rtol=0, atol=2 * 3 / 255)  # two rows; each spans 3
    assert tt.quantize_embeddings(model, torch.int8, inplace=True) is model
    assert isinstance(model.sparse, tt.QuantEmbeddingBagCollection)
    with pytest.raises(KeyError, match="no table d"):
        tt.quantize(Model(), per_table_weight_dtype={"d": torch.int8})
    with pytest.raises(ValueError, match="int9"):
        tt.quantize(Model(), "int9")
    with pytest.raises(NotImplementedError, match="bag is a AdoptedEmbeddingBag"):
        adopted = torch.nn.ModuleDict({"bag": torch.nn.EmbeddingBag(9, 4, mode="sum")})
        tt.adopt(adopted, SGD)
        tt.quantize(adopted)


def test_quantized_sequences_infer():
    sequences = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "a", feature_names=["x", "y"])])
    sequences.core.set_weight("a", np.arange(24).reshape(6, 4) / 2)
    quantized = tt.quantize(sequences, torch.float16)
    assert isinstance(quantized, tt.QuantEmbeddingCollection)
    for features in (batch(), batch().permute([1, 0])):
        exact, out = sequences(features), quantized(features)
        assert set(out) == {"x", "y"}
        for name, rows in out.items():
            assert torch.equal(rows.values(), exact[name].values())
            assert torch.equal(rows.lengths(), exact[name].lengths())
    with pytest.raises(LookupError, match='no key "x"; it has y'):
        quantized(batch().permute([0]))


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_meshes_of_devices_and_dtensors_which_state_dicts_take(tmp_path):
    assert "all right" in run_ranks("backend.py", "dtensors", str(tmp_path), timeout=300)


@pytest.mark.parametrize("ranks", [1, 2])
def test_as_torchrec_was_recorded(ranks):
    assert "all agree" in run_ranks("torch_side.py", ranks=ranks, timeout=300)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_beside_torchrec(ranks, capsys):
    """A few hundred cases take a minute or two: which one it has come to is shown beside pytest's own dots."""
    pytest.importorskip("torchrec")
    cases, come = int(os.environ.get("TESSERA_TORCHREC_CASES", "12")) // (5 if ranks == 4 else 1), []

    def tell(line):
        come.extend([line] if line.startswith("case ") else [])
        if line.startswith("case ") and len(come) % 50 == 0:
            with capsys.disabled():
                print(f" {len(come)} of {cases} cases on {ranks} ranks", flush=True)

    ends = [0] * ranks
    told = run_ranks("beside_torchrec.py", cases, 1000 * ranks, ranks=ranks, timeout=3000, ends=ends, tell=tell)
    assert "all agree" in told and len(come) == cases
