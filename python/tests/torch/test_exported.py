"""PyTorch models that torch.export makes a graph of, packed and asked without PyTorch."""

import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

from test_pack import DENSE, IDS, SGD, Model, OfTorch, features, predicted, trained  # noqa: E402

if not hasattr(getattr(torch.export, "Dim", None), "AUTO"):
    pytest.skip("torch.export has no Dim.AUTO here", allow_module_level=True)


class Anything(torch.nn.Module):
    """A forward of conditions, loops, functions and formulas."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        item = tt.EmbeddingBagConfig(10, 8, "item", feature_names=["film", "tag"], pooling=tt.PoolingType.MEAN)
        self.sparse = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(30, 4, "user"), item], optimizer=SGD)
        self.first, self.norm, self.batch_norm = torch.nn.Linear(3, 8), torch.nn.LayerNorm(8), torch.nn.BatchNorm1d(8)
        self.prelu, self.gelu = torch.nn.PReLU(), torch.nn.GELU()
        self.matrix = torch.nn.Parameter(torch.randn(8, 4))
        self.register_buffer("mean", torch.tensor([1.0, -0.5, 0.25]))
        self.register_buffer("deviation", torch.tensor([0.5, 2.0, 4.0]))
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(2))
        self.last = torch.nn.Linear(5, 1)

    def forward(self, dense, features):
        pooled = self.sparse(features)
        if dense.shape[1] != 3:
            raise ValueError("dense")
        x = self.batch_norm(self.norm(self.first((dense - self.mean) / self.deviation)))
        x = functional.silu(self.gelu(self.prelu(x + 1)))
        y = functional.dropout(x @ self.matrix, 0.1, self.training)
        for block in self.blocks:
            y = functional.relu_(block(y)) + y
        z = functional.normalize(y + pooled["user"], dim=1)
        left, right = torch.chunk(z, 2, dim=1)
        c = torch.cat([right, left, z[:, 1:3], z[:, 2].unsqueeze(1)], -1).view(z.shape[0], -1)
        c = c * torch.sigmoid(pooled.values().sum(1, keepdim=True))
        t = functional.softplus(functional.mish(functional.elu(functional.leaky_relu(z, 0.2))))
        t = functional.hardtanh(torch.clamp(functional.selu(t), -0.5, 1)) ** 2
        both = (pooled["film"] * pooled["tag"]).sum(-1).reshape(-1, 1)
        score = self.last(torch.cat([1 - t, functional.hardsigmoid(both)], 1)) + (c * c).mean(-1, keepdim=True)
        return torch.sigmoid(score).squeeze(-1)


def test_any_forward_is_packed(tmp_path):
    model = Anything()
    for _ in range(2):
        model(DENSE, features()).sum().backward()  # statistics of the batch norm, and rows
    model.train()
    tt.pack(model, tmp_path / "model", format="fp32", example=(DENSE, features()))
    assert model.training and model.norm.training and "forward" not in model.sparse.__dict__
    expected = model.eval()(DENSE, features()).detach()
    torch.testing.assert_close(predicted(tmp_path / "model", IDS), expected, rtol=1e-5, atol=1e-6)


def test_both_graphs_of_a_model_are_the_same(tmp_path):
    model = trained(Model())
    tt.pack(model, tmp_path / "fx", format="fp32")
    tt.pack(model, tmp_path / "export", format="fp32", example=(DENSE, features()))
    fx, export = predicted(tmp_path / "fx", IDS), predicted(tmp_path / "export", IDS)
    torch.testing.assert_close(export, fx, rtol=1e-6, atol=1e-6)


def test_adopted_bags_are_packed(tmp_path):
    model = OfTorch()
    tt.adopt(model, SGD)
    bags = [torch.tensor([3, 0, 29]), torch.arange(3), torch.tensor([5, 7, 7, 1]), torch.tensor([0, 3, 3])]
    expected = torch.sigmoid(model(DENSE, *bags)).detach().reshape(-1)
    tt.pack(model, tmp_path / "model", format="fp32", example=(DENSE, *bags))
    found = predicted(tmp_path / "model", ["user", "film"])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


class Two(torch.nn.Module):
    """Two tensors of dense values, two scores, and a module of one's own."""

    def __init__(self, own):
        super().__init__()
        torch.manual_seed(6)
        self.sparse = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(30, 4, "user")], optimizer=SGD)
        self.own, self.top = own, torch.nn.Linear(7, 1)

    def forward(self, a, b, features):
        user = self.sparse(features)["user"]
        return {
            "up": self.top(torch.cat([self.own(user, a), b, a], 1)),
            "down": torch.sigmoid(1 - self.own(user, b))[:, 0],
        }


class Sines(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x, y):
        return torch.sin(x @ self.w.t()) + y.mean()


class Products(Sines):
    def forward(self, x, y):
        return (x * y[:, :1]) @ self.w.t()


def test_modules_of_ones_own_and_several_inputs(tmp_path):
    a, b = DENSE[:, :1], DENSE[:, 1:]
    kjt = tt.KeyedJaggedTensor.from_lengths_sync(["user"], torch.tensor(IDS["user"][0]), torch.tensor([1, 1, 1]))
    with pytest.raises(NotImplementedError, match=r"the operator aten.sin.default of node \"sin\" \(inputs \w+\)"):
        tt.pack(Two(Sines()), tmp_path / "no", example=(a, b, kjt))
    model = Two(Products())
    tt.pack(model, tmp_path / "model", format="fp32", example=(a, b, kjt))
    expected = model(a, b, kjt)
    ids = {"user": (torch.tensor(IDS["user"][0]), torch.tensor([1, 1, 1]))}
    got = tessera.PackedModel(tmp_path / "model").predict(ids, DENSE)
    wanted = {"up": torch.sigmoid(expected["up"]), "down": expected["down"]}
    for name, values in wanted.items():
        torch.testing.assert_close(torch.from_numpy(got[name]).reshape(-1), values.detach().reshape(-1))
    wide = tt.Layer("linear", 4, {"width": 4, "bias": False}, {"weight": "w"})

    class Own(Sines):
        def forward(self, x, y):
            return torch.sin(torch.cat([x, y], 1) @ self.w.t())

    model = Two(Own())
    model.own.w = torch.nn.Parameter(torch.randn(4, 6))
    model.forward = lambda a, b, f: model.top(torch.cat([model.own(model.sparse(f)["user"], b), b, a], 1))
    tt.pack(model, tmp_path / "own", layers={"own": wide}, format="fp32", example=(a, b, kjt))
    got = tessera.PackedModel(tmp_path / "own").predict(ids, DENSE)["score"]
    with torch.no_grad():
        rows = model.sparse(kjt)["user"]
        score = model.top(torch.cat([torch.cat([rows, b], 1) @ model.own.w.t(), b, a], 1))
    torch.testing.assert_close(torch.from_numpy(got), torch.sigmoid(score).reshape(-1))


class Stacked(torch.nn.Module):
    """DLRM's interaction in two orders, a factorization machine, and experts."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        configs = [tt.EmbeddingBagConfig(rows, 4, name) for name, rows in {"user": 30, "film": 10, "tag": 10}.items()]
        self.sparse = tt.EmbeddingBagCollection(configs, optimizer=SGD)
        self.bottom, self.gate = torch.nn.Linear(3, 4), torch.nn.Linear(12, 3)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(12, 5) for _ in range(3))
        self.top = torch.nn.Linear(4 + 6 + 6 + 1 + 5 + 4 + 4, 1)

    def forward(self, dense, features):
        rows = self.sparse(features)
        low, side = torch.relu(self.bottom(dense)), rows.values()
        all_rows = torch.cat([low, side], 1).view(dense.shape[0], -1, 4)
        dots = torch.bmm(all_rows, all_rows.transpose(1, 2))
        i, j = torch.triu_indices(4, 4, offset=1)
        lower = [(a, b) for a in range(4) for b in range(a)]
        both = dots[:, i, j], dots[:, [a for a, _ in lower], [b for _, b in lower]]
        stacked = torch.stack([rows["user"], rows["film"], rows["tag"]], 1)
        fm = 0.5 * (stacked.sum(1) ** 2 - (stacked**2).sum(1)).sum(1, keepdim=True)
        experts = torch.stack([torch.tanh(expert(side)) for expert in self.experts], 1)
        mixed = (torch.softmax(self.gate(side), -1).unsqueeze(-1) * experts).sum(1)
        parts = [low, *both, fm, mixed, stacked.mean(1), stacked[:, 1]]
        return self.top(torch.cat(parts, 1)).flatten()


def test_stacked_vectors_are_packed(tmp_path):
    model = Stacked()
    with torch.no_grad():
        for table in ("user", "film", "tag"):
            model.sparse.embedding_bags[table].weight.uniform_(-1, 1)
    tt.pack(model, tmp_path / "model", format="fp32", example=(DENSE, features()))
    expected = torch.sigmoid(model(DENSE, features())).detach()
    torch.testing.assert_close(predicted(tmp_path / "model", IDS), expected, rtol=1e-5, atol=1e-6)


class Over(torch.nn.Module):
    """A function of dense values and pooled rows."""

    def __init__(self, function):
        super().__init__()
        self.sparse = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(30, 3, "user")], optimizer=SGD)
        self.function, self.top = function, torch.nn.Linear(3, 1)

    def forward(self, dense, features):
        return self.top(self.function(dense, self.sparse(features)["user"]))


@pytest.mark.parametrize(
    "function, sentence",
    [
        (lambda x, y: x.view(3, -1) + y, "computes with the number of samples of the example, 3"),
        (lambda x, y: x @ y.t() @ y, r"the operator aten.t.default of node \"t\" \(inputs \w+\) has no counterpart"),
        (lambda x, y: functional.gelu(x, approximate="tanh"), "gelu.default of node .*which is approximated"),
        (lambda x, y: torch.relu(x * torch.tensor([1.0, 2, 3])), "a constant for each of 3 values"),
        (lambda x, y: x / y, "div.Tensor of node .*except by a constant or by the vector's length"),
        (lambda x, y: x.softmax(0), "along dimension 0"),
        (lambda x, y: x.cumsum(1), r"the operator aten.cumsum.default of node \"cumsum\" \(inputs \w+\)"),
        (lambda x, y: x if x.sum() > 0 else y, "torch.export cannot trace the model"),
    ],
    ids=str,
)
def test_what_no_layer_computes_is_named(function, sentence, tmp_path):
    kjt = tt.KeyedJaggedTensor.from_lengths_sync(["user"], torch.tensor([1, 2, 3]), torch.tensor([1, 1, 1]))
    model = Over(function)
    with pytest.raises(NotImplementedError, match=sentence):
        tt.pack(model, tmp_path / "no", example=(DENSE, kjt))
    assert "forward" not in model.sparse.__dict__
    assert not (tmp_path / "no").exists()


def test_computing_with_ids_is_refused(tmp_path):
    class Long(Over):
        def forward(self, dense, features):
            return super().forward(dense / features.lengths().sum(), features)

    kjt = tt.KeyedJaggedTensor.from_lengths_sync(["user"], torch.tensor([1, 2, 3]), torch.tensor([1, 1, 1]))
    with pytest.raises(NotImplementedError, match="the model reads .lengths of an argument that is no float tensor"):
        tt.pack(Long(lambda x, y: x + y), tmp_path / "no", example=(DENSE, kjt))


def test_an_example_of_one_sample_is_refused(tmp_path):
    kjt = tt.KeyedJaggedTensor.from_lengths_sync(["user"], torch.tensor([1]), torch.tensor([1]))
    with pytest.raises(ValueError, match="there must be 2 samples or more"):
        tt.pack(Over(lambda x, y: x + y), tmp_path / "no", example=(DENSE[:1], kjt))
