"""Tables in graphs of PyTorch: torch.compile without breaks, torch.export, torch.jit and torch.fx."""

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402
from test_torch import batch, run_ranks  # noqa: E402

SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)
pytestmark = pytest.mark.skipif(tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 14),
                                reason="graphs with tables are for PyTorch 2.14 and later")  # fmt: skip


def bags(optimizer=SGD, weighted=False):
    tables = [tt.EmbeddingBagConfig(6, 4, "a", feature_names=["x"]),
              tt.EmbeddingBagConfig(4, 2, "b", feature_names=["y"])]  # fmt: skip
    return tt.EmbeddingBagCollection(tables, weighted, optimizer=optimizer)


def whole(model):
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_sharded_models_are_whole_graphs(ranks):
    assert "all right" in run_ranks("graphs.py", "gloo", ranks=ranks, timeout=400, ends=[0] * ranks)


@pytest.mark.parametrize("optimizer", [SGD, None])
def test_weights_of_ids_in_a_graph(optimizer):
    torch.manual_seed(3)
    model = bags(optimizer, True)
    other = copy.deepcopy(model)
    results = []
    for one in (model, whole(other)):
        weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], requires_grad=True)
        features = batch()
        features = tt.KeyedJaggedTensor(features.keys(), features.values(), weights, features.lengths())
        one(features).values().square().sum().backward()
        results.append(weights.grad)
    torch.testing.assert_close(*results)
    for mine, theirs in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_keys_of_different_length_in_a_graph():
    model = bags()
    other = copy.deepcopy(model)
    graph = whole(other)
    for _ in range(2):
        results = []
        for one in (model, graph):
            inverse = (["x", "y"], torch.tensor([[0, 1], [0, 0]]))
            features = tt.KeyedJaggedTensor(["x", "y"], torch.tensor([3, 0, 1, 2]), lengths=torch.tensor([1, 2, 1]),
                                            stride_per_key_per_rank=[[2], [1]], inverse_indices=inverse)  # fmt: skip
            results.append(one(features).values())
            results[-1].square().sum().backward()
        torch.testing.assert_close(*results)
    for mine, theirs in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs)


def test_a_retained_graph_goes_backward_twice():
    model = bags()
    other = copy.deepcopy(model)
    for one in (model, whole(other)):
        loss = one(batch()).values().square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
    for mine, theirs in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(mine, theirs)
    assert not tt._ops._known().steps


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = bags()

    def forward(self, features):
        with torch.no_grad():
            self.e.embedding_bags["a"].weight.mul_(2)
        return self.e(features).values()


def test_what_graphs_cannot_do_is_a_sentence():
    with pytest.raises(NotImplementedError, match="changes the rows of table a before it looks them up"):
        whole(Changing())(batch())
    with pytest.raises(NotImplementedError, match="torch.jit.script cannot compile a KeyedJaggedTensor"):
        torch.jit.script(nn.Sequential(bags()))
    adopted = nn.ModuleDict({"e": nn.Embedding(5, 2, max_norm=1.0)})
    tt.adopt(adopted, SGD)
    with pytest.raises(NotImplementedError, match="max_norm changes rows"):
        torch.export.export(adopted["e"], (torch.tensor([1]),), strict=False)
    with pytest.raises(NotImplementedError, match="does not train its tables"):
        torch.export.export(bags(), (batch(),), strict=False)
    lost = torch.ops.tessera.pooled
    with pytest.raises(RuntimeError, match="collection of the tables gone, which is not in this process"):
        lost(None, torch.tensor([1]), torch.tensor([1]), None, None, [], [], "gone", "x", None, 1, 2, False)


def test_a_copy_with_pytorchs_modules_is_scripted():
    model, ids = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 1)), torch.tensor([1, 2, 3])
    expected = model(ids)
    tt.adopt(model, SGD)
    with pytest.raises(NotImplementedError, match="cannot compile an adopted module"):
        torch.jit.script(model)
    other = copy.deepcopy(model)
    tt.release(other)
    torch.testing.assert_close(torch.jit.script(other)(ids), expected)
    assert type(model[0]).__name__ == "AdoptedEmbedding"


def test_rows_that_are_assigned_reach_a_graph():
    model = bags()
    graph = whole(model)
    graph(batch())
    model.embedding_bags["a"].weight.data = torch.ones(6, 4)
    assert (graph(batch())["x"] == torch.tensor([[2.0], [0.0]])).all()
    model.embedding_bags["a"].weight = nn.Parameter(torch.full((6, 4), 2.0))
    assert (graph(batch())["x"] == torch.tensor([[4.0], [0.0]])).all()


class Quantized(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = tt.quantize(bags(), torch.float16)
        rows = tt.EmbeddingCollection([tt.EmbeddingConfig(6, 4, "c", feature_names=["x"])])
        self.rows = tt.quantize(rows, torch.float16)

    def forward(self, features):
        return self.bags(features).values() + self.rows(features)["x"].values().sum()


def test_quantized_models_are_graphs():
    model = Quantized()
    expected = model(batch())
    torch.testing.assert_close(whole(model)(batch()), expected)
    torch.testing.assert_close(torch.export.export(model, (batch(),), strict=False).module()(batch()), expected)
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(batch()), expected)


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}])
def test_adopted_modules_are_graphs(options):
    torch.manual_seed(2)
    model = nn.ModuleDict({"e": nn.Embedding(9, 4, **options), "b": nn.EmbeddingBag(9, 4, mode="mean", **options)})
    other, ids = copy.deepcopy(model), torch.tensor([[1, 3], [2, 2]])
    for one in (model, other):
        tt.adopt(one, SGD)
    for name in ("e", "b"):
        graph = whole(other[name])
        for _ in range(2):
            results = model[name](ids), graph(ids)
            torch.testing.assert_close(*results)
            for result in results:
                result.square().sum().backward()
        torch.testing.assert_close(model[name].weight, other[name].weight)
