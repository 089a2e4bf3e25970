"""PyTorch models, packed and asked without PyTorch: by the program's files of samples, and by its server."""

import csv
import json
import os
import subprocess
import sys
import urllib.request

import pytest

torch = pytest.importorskip("torch")

import tessera  # noqa: E402
import tessera.torch as tt  # noqa: E402

from test_torch import run_ranks  # noqa: E402

if not any(p["kind"] == "tessera.module/1" and p["state"] != "unusable" for p in tessera.Runtime.default().plugins()):
    pytest.skip("no plugin here computes dense layers", allow_module_level=True)

SGD = tessera.Optimizer("exact_sgd", learning_rate=0.5)
PROGRAM = [sys.executable, "-m", "tessera"]
DENSE = torch.tensor([[0.5, -1.0, 2.0], [0.0, 1.5, -0.25], [3.0, 0.1, 0.2]])
IDS = {"user": ([3, 0, 29], [1, 1, 1]), "film": ([5, 7, 7, 1], [3, 0, 1]), "tag": ([2, 9, 4], [1, 2, 0])}


def features():
    ids, lengths = zip(*IDS.values())
    return tt.KeyedJaggedTensor.from_lengths_sync(
        list(IDS), torch.tensor([i for part in ids for i in part]), torch.tensor([n for part in lengths for n in part])
    )


class Model(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(3)
        item = tt.EmbeddingBagConfig(10, 8, "item", feature_names=["film", "tag"], pooling=tt.PoolingType.MEAN)
        configs = [tt.EmbeddingBagConfig(30, 4, "user"), item]
        self.sparse = tt.EmbeddingBagCollection(configs, optimizer=SGD, **options)
        self.bottom = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
        self.item = torch.nn.Linear(8, 8, bias=False)
        self.over = torch.nn.Sequential(
            torch.nn.Linear(20 + 8, 6), torch.nn.PReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(6, 6),
            torch.nn.LeakyReLU(0.2), torch.nn.Linear(6, 1), torch.nn.Sigmoid())  # fmt: skip

    def forward(self, dense, features):
        pooled = self.sparse(features)
        low = self.bottom(dense)
        film = torch.tanh(self.item(pooled["film"])) + low
        return self.over(torch.cat([pooled.values(), film * low], dim=1)).squeeze(-1)


def trained(model):
    torch.manual_seed(4)  # of the dropout
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (model(DENSE, features()) - torch.tensor([0.1, 0.9, 0.2])).square().sum().backward()
        optimizer.step()
    return model.eval()


def predicted(directory, names, dense=DENSE):
    """Scores of a file of samples, by the program."""
    lines = []
    parts = {name: iter(IDS[name][0]) for name in names}
    for sample in range(len(DENSE)):
        ids = [",".join(str(next(parts[name])) for _ in range(IDS[name][1][sample])) for name in names]
        values = ",".join(repr(v) for v in dense[sample].tolist())
        lines.append("\t".join(["0", values, *ids]))
    samples = directory.parent / "samples.tsv"
    samples.write_text("\n".join(lines) + "\n")
    command = [*PROGRAM, "predict", "--model", str(directory), "--data", str(samples)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    return torch.tensor([float(row["score"]) for row in csv.DictReader(told.stdout.splitlines())])


def test_a_trained_model_is_packed_and_served(tmp_path):
    model = trained(Model())
    expected = model(DENSE, features()).detach()
    report = tt.pack(model, tmp_path / "model", format="fp32", name="films")
    assert [table["table"] for table in report] == ["user", "item"]
    torch.testing.assert_close(predicted(tmp_path / "model", IDS), expected, rtol=1e-5, atol=1e-6)
    tt.pack(model, tmp_path / "small", formats={"user": "fp16"})
    torch.testing.assert_close(predicted(tmp_path / "small", IDS), expected, rtol=0, atol=0.02)
    server = subprocess.Popen(
        [*PROGRAM, "serve", "--model", str(tmp_path / "model"), "--port", "0"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().split(" at ")[1].strip()
        inputs = [{"name": "dense", "datatype": "FP32", "shape": [3, 3], "data": DENSE.tolist()}]
        for name, (ids, lengths) in IDS.items():
            inputs.append({"name": f"{name}.values", "datatype": "INT64", "shape": [len(ids)], "data": ids})
            inputs.append({"name": f"{name}.lengths", "datatype": "INT32", "shape": [3], "data": lengths})
        asked = urllib.request.Request(f"{url}/v2/models/films/infer", json.dumps({"inputs": inputs}).encode())
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        answer = json.loads(opener.open(asked, timeout=20).read())
        torch.testing.assert_close(torch.tensor(answer["outputs"][0]["data"]), expected, rtol=1e-5, atol=1e-6)
    finally:
        server.terminate()
        server.wait(20)
    with pytest.raises(FileExistsError, match="model"):
        tt.pack(model, tmp_path / "model")


class OfTorch(torch.nn.Module):
    """A model as people have them, before it is adopted."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embed = torch.nn.ModuleDict(
            {"user": torch.nn.EmbeddingBag(30, 4, mode="sum"), "film": torch.nn.EmbeddingBag(10, 4, mode="mean")}
        )
        self.top = torch.nn.Linear(11, 1)

    def forward(self, dense, user, user_offsets, film, film_offsets):
        rows = [self.embed["user"](user, user_offsets), self.embed["film"](film, film_offsets), torch.relu(dense)]
        return self.top(torch.cat(rows, -1))


def test_adopted_tables_are_packed(tmp_path):
    model = OfTorch()
    inputs = [DENSE]
    for name in ("user", "film"):
        ids, lengths = IDS[name]
        inputs += [torch.tensor(ids), torch.tensor([0, *lengths[:-1]]).cumsum(0)]
    assert tt.adopt(model, SGD) == ["embed.user", "embed.film"]
    model(*inputs).sum().backward()
    expected = torch.sigmoid(model(*inputs)).detach().reshape(-1)
    tt.pack(model, tmp_path / "model", format="fp32")
    torch.testing.assert_close(predicted(tmp_path / "model", ["user", "film"]), expected, rtol=1e-5, atol=1e-6)


class Crossed(torch.nn.Module):
    """Has a module of its own, for which a layer stands."""

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(7)
        configs = [tt.EmbeddingBagConfig(30, 4, "user"), tt.EmbeddingBagConfig(10, 4, "film")]
        self.sparse = tt.EmbeddingBagCollection(configs, optimizer=SGD, **options)
        self.own = Interaction()
        self.top = torch.nn.Linear(10, 1)

    def forward(self, features):
        pooled = self.sparse(features)
        return self.top(torch.cat([self.own(pooled["user"], pooled["film"]), pooled.values()], 1))


class Interaction(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.w = (torch.nn.Parameter(torch.randn(shape)) for shape in ((2, 4), (2, 4), (2, 4, 4)))

    def forward(self, x, y):
        return torch.cat([x @ self.a.t(), y @ self.b.t()], 1)[:, 1:3]


def test_a_module_of_ones_own_is_named_or_said(tmp_path):
    model = Crossed()
    with pytest.raises(NotImplementedError, match="own.a, which the model reads.*layers="):
        tt.pack(model, tmp_path / "no")

    class Linear(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(2, 8))

        def forward(self, x, y):
            return torch.cat([x, y], 1) @ self.w.t()

    model.own = Linear()
    layer = tt.Layer("linear", 2, {"width": 2, "bias": False}, {"weight": "w"})
    tt.pack(model, tmp_path / "yes", layers={"own": layer}, format="fp32")
    names = ["user", "film"]
    ids, lengths = zip(*[IDS[name] for name in names])
    kjt = tt.KeyedJaggedTensor.from_lengths_sync(
        names, torch.tensor([i for part in ids for i in part]), torch.tensor([n for part in lengths for n in part])
    )
    expected = torch.sigmoid(model(kjt)).detach().reshape(-1)
    found = predicted(tmp_path / "yes", names, dense=torch.zeros(3, 0))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(KeyError, match="no parameter v; there are w"):
        tt.pack(model, tmp_path / "no", layers={"own": tt.Layer("linear", 2, {"width": 2}, {"weight": "v"})})
    with pytest.raises(ValueError, match='"own.bias"|own.*bias'):
        tt.pack(model, tmp_path / "no", layers={"own": tt.Layer("linear", 2, {"width": 2}, {"weight": "w"})})


class Of(torch.nn.Module):
    """A module over pooled rows."""

    def __init__(self, over):
        super().__init__()
        self.sparse = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(30, 4, "user")])
        self.over = over

    def forward(self, features):
        return self.over(self.sparse(features).values())


@pytest.mark.parametrize("activation", [torch.nn.ELU(), torch.nn.SELU(), torch.nn.Softplus(), torch.nn.Mish()], ids=str)
def test_activations_are_packed(activation, tmp_path):
    torch.manual_seed(5)
    model = Of(torch.nn.Sequential(torch.nn.Linear(4, 8), activation, torch.nn.Linear(8, 1))).eval()
    with torch.no_grad():
        model.over[0].weight.mul_(20)  # values far on both sides of 0
    tt.pack(model, tmp_path / "model", format="fp32")
    ids, lengths = IDS["user"]
    kjt = tt.KeyedJaggedTensor.from_lengths_sync(["user"], torch.tensor(ids), torch.tensor(lengths))
    expected = torch.sigmoid(model(kjt)).detach().reshape(-1)
    found = predicted(tmp_path / "model", ["user"], dense=torch.zeros(3, 0))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_what_cannot_be_packed_is_said(tmp_path):
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    for over, sentence in [
        (Branches(), "cannot be traced by torch.fx"),
        (torch.nn.Bilinear(4, 4, 1), "over, a Bilinear, has no counterpart.*, and example="),
        (torch.nn.GELU("tanh"), "a GELU that is approximated"),
        (torch.nn.PReLU(4), "a slope for each value"),
        (torch.nn.ELU(0.5), "an ELU whose alpha is not 1"),
        (torch.nn.Softplus(2), "a Softplus whose beta is not 1"),
    ]:
        with pytest.raises(NotImplementedError, match=sentence):
            tt.pack(Of(over), tmp_path / "no")
    with pytest.raises(ValueError, match="over takes 5 values, and is given 4"):
        tt.pack(Of(torch.nn.Linear(5, 1)), tmp_path / "no")
    assert not os.path.exists(tmp_path / "no")


def test_two_ranks_pack_together(tmp_path):
    assert "packed" in run_ranks("pack.py", tmp_path / "model")
    model = trained(Model())  # of one rank, whose tables the two ranks have cut
    expected = model(DENSE, features()).detach()
    torch.testing.assert_close(predicted(tmp_path / "model", IDS), expected, rtol=1e-5, atol=1e-6)


class Attention(torch.nn.Module):
    """DIN's, without a softmax: what a layer target_attention is."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(16, 5), torch.nn.Linear(5, 1)

    def forward(self, target, history):
        of = torch.repeat_interleave(torch.arange(len(target)), history.lengths())
        q, k = target[of], history.values()
        a = self.out(torch.sigmoid(self.hidden(torch.cat([q, k, q - k, q * k], 1))))
        return torch.zeros(len(target), k.shape[1]).index_add(0, of, a * k)


class Interest(torch.nn.Module):
    """A history of films beside the film in question, and an nn.Embedding or two that are adopted."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(9)
        self.sparse = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(30, 4, "user")], optimizer=SGD)
        films = tt.EmbeddingConfig(10, 4, "films", feature_names=["film", "tag"])
        self.rows = tt.EmbeddingCollection([films], optimizer=SGD)
        self.first, self.attention = First(), Attention()
        self.top = torch.nn.Linear(12, 1)

    def forward(self, features):
        rows, user = self.rows(features), self.sparse(features)["user"]
        target = self.first(rows["film"])
        return self.top(torch.cat([user, target, self.attention(target, rows["tag"])], 1))


class First(torch.nn.Module):
    """The sum of a sequence."""

    def forward(self, rows):
        of = torch.repeat_interleave(torch.arange(len(rows.lengths())), rows.lengths())
        return torch.zeros(len(rows.lengths()), rows.values().shape[1]).index_add(0, of, rows.values())


def test_sequences_are_packed(tmp_path):
    model = Interest()
    (model(features()) ** 2).sum().backward()
    names = {"0.weight": "hidden.weight", "0.bias": "hidden.bias", "1.weight": "out.weight", "1.bias": "out.bias"}
    attention = tt.Layer("target_attention", 4, {"widths": [5]}, names)
    layers = {"attention": attention, "first": tt.Layer("sum_pooling", 4)}
    tt.pack(model, tmp_path / "model", format="fp32", layers=layers)
    expected = torch.sigmoid(model(features())).detach().reshape(-1)
    packed = tessera.PackedModel(tmp_path / "model")
    got = packed.predict({name: tuple(map(torch.tensor, of)) for name, of in IDS.items()})["score"]
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)
    unpooled = Unpooled()
    with pytest.raises(NotImplementedError, match=r"values\(\) of the sequence film, of which a module of one's own"):
        tt.pack(unpooled, tmp_path / "no")


class Unpooled(Interest):
    def forward(self, features):
        return self.top(self.rows(features)["film"].values())


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        for name, rows in {"user": 30, "film": 10, "tag": 10}.items():
            setattr(self, name, torch.nn.Embedding(rows, 4))
        self.bag = torch.nn.EmbeddingBag(5, 4, mode="sum")
        self.top = torch.nn.Linear(16, 1)

    def forward(self, user, film, tag, bag):
        return self.top(
            torch.cat([self.user(user), self.film(film).mean(dim=1), self.tag(tag).sum(1), self.bag(bag)], 1)
        )


def test_adopted_rows_are_pooled_as_the_model_says(tmp_path):
    model = Rows()
    tt.adopt(model, SGD)
    ids = torch.tensor([4, 29]), torch.tensor([[1, 2, 3], [9, 9, 0]]), torch.tensor([[5, 6], [7, 7]])
    bag = torch.tensor([[0], [3]])
    expected = torch.sigmoid(model(*ids, bag)).detach().reshape(-1)
    with pytest.raises(NotImplementedError, match="cat of the sequence user, which is not pooled"):
        tt.pack(model, tmp_path / "no")
    tt.pack(model, tmp_path / "model", format="fp32", layers={"user": tt.Layer("sum_pooling", 4)})
    batch = dict(zip(("user", "film", "tag", "bag"), (part.tolist() for part in (*ids, bag))))
    got = tessera.PackedModel(tmp_path / "model").predict(batch)["score"]
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-5, atol=1e-6)
