"""tessera.torch on one rank and on two: autograd, state dicts, adopted models, and TorchRec beside it where it is."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

HERE = Path(__file__).resolve().parent
SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)


def run_ranks(script, *arguments, ranks=2, timeout=600):
    """What rank 0 prints; all started as torchrun would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")  # fmt: skip
        command = [sys.executable, str(HERE / script), *[str(a) for a in arguments]]
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    try:
        told = [rank.communicate(timeout=timeout)[0] for rank in started]
        assert all(rank.returncode == 0 for rank in started), "\n".join(told)
        return told[0]
    finally:
        for rank in started:
            rank.kill()


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
    assert model.load(tmp_path / "saved") == "here"


def test_states_of_fused_optimizers():
    def made():
        ebc = bags(device="meta")
        tt.apply_optimizer_in_backward(torch.optim.Adam, ebc, {"lr": 0.1, "betas": (0.8, 0.9)})
        return tt.DistributedModelParallel(torch.nn.ModuleDict({"sparse": ebc}))

    one, two = made(), made()
    one.module["sparse"](batch()).values().sum().backward()
    state = one.fused_optimizer.state_dict()
    assert set(state["state"]["sparse.embedding_bags.a.weight"]) == {"a.momentum1", "a.momentum2"}
    two.load_state_dict(one.state_dict())
    two.fused_optimizer.load_state_dict(state)
    for model in (one, two):
        model.module["sparse"](batch()).values().sum().backward()
    for key, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[key])


def test_what_has_no_counterpart_is_named():
    with pytest.raises(NotImplementedError, match="need_indices"):
        tt.EmbeddingCollection([], need_indices=True)
    with pytest.raises(NotImplementedError, match="cuda"):
        bags(device="cuda")
    with pytest.raises(NotImplementedError, match="Adamax"):
        tt.apply_optimizer_in_backward(torch.optim.Adamax, bags(), {})
    with pytest.raises(NotImplementedError, match="padding_idx of e"):
        tt.adopt(torch.nn.ModuleDict({"e": torch.nn.Embedding(3, 2, padding_idx=0)}), SGD)
    with pytest.raises(RuntimeError, match="meta device"):
        bags(device="meta")(batch())


def test_two_ranks_train_a_dense_part_too():
    assert "all equal" in run_ranks("parallel.py")


@pytest.mark.parametrize("ranks", [1, 2])
def test_beside_torchrec(ranks):
    pytest.importorskip("torchrec")
    cases = int(os.environ.get("TESSERA_TORCHREC_CASES", "12"))
    assert "all agree" in run_ranks("beside_torchrec.py", cases, 1000 * ranks, ranks=ranks, timeout=3000)
