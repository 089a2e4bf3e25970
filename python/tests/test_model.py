"""Predictions of packed models from NumPy: features in all their forms, weights, several outputs, wrong uses."""

import subprocess
import sys
import warnings

import numpy as np
import pytest

import tessera

if not any(p["kind"] == "tessera.module/1" and p["state"] != "unusable" for p in tessera.Runtime.default().plugins()):
    pytest.skip("no plugin here computes dense layers", allow_module_level=True)

GRAPH = {
    "dense_inputs": 2,
    "layers": [
        {"name": "top", "type": "linear", "inputs": ["dense", "film"], "options": {"width": 1}},
        {"name": "side", "type": "linear", "inputs": ["user"], "options": {"width": 2}},
    ],
    "heads": [{"name": "click", "input": "top"}, {"name": "pair", "input": "side", "loss": "mse"}],
}
PARAMETERS = {
    "top.weight": np.array([[0.5, -1, 1, 0, 0, 0]], np.float32),
    "top.bias": np.array([-4], np.float32),
    "side.weight": np.eye(2, 4, dtype=np.float32),
    "side.bias": np.array([0, 100], np.float32),
}
DENSE = np.array([[2, 1], [0, 3]], np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tables = tessera.EmbeddingBagCollection(
        [tessera.EmbeddingBagConfig(6, 4, "film"), tessera.EmbeddingBagConfig(5, 4, "user")], is_weighted=True
    )
    tables.set_weight("film", np.arange(24).reshape(6, 4))
    tables.set_weight("user", np.arange(20).reshape(5, 4))
    path = tmp_path_factory.mktemp("packed") / "model"
    tessera.pack(path, tables, GRAPH, PARAMETERS, format="fp32")
    return path


def clicks(film):
    """film: what the first column of the film's rows adds up to, by sample."""
    return 1 / (1 + np.exp(-(DENSE @ [0.5, -1] + np.array(film) - 4)))


def test_what_a_model_says_of_itself(folder):
    model = tessera.PackedModel(folder)
    assert (model.name, model.type, model.dense_inputs, model.is_weighted) == ("model", "graph", 2, True)
    assert model.features == {"film": 6, "user": 5} and model.outputs == {"click": 1, "pair": 2}
    assert len(model.version) == 16


def test_all_outputs_of_features_in_all_their_forms(folder):
    model = tessera.PackedModel(folder)
    for film in ([[1, 0], [2]], (np.array([1, 0, 2]), np.array([2, 1])), [{1: 1, 0: 1}, [(2, 1.0)]]):
        got = model.predict({"film": film, "user": np.array([3, 4]), "further": None}, DENSE)
        np.testing.assert_allclose(got["click"], clicks([4, 8]), rtol=1e-6)
        np.testing.assert_array_equal(got["pair"], [[12, 113], [16, 117]])
    weighted = [{1: 0.5, 2: 0.25}, {}], ([1, 2], [2, 0], np.array([0.5, 0.25], np.float32))
    for film in weighted:
        got = model.predict({"film": film, "user": [[3], []]}, DENSE)
        np.testing.assert_allclose(got["click"], clicks([2 + 2, 0]), rtol=1e-6)
        np.testing.assert_array_equal(got["pair"], [[12, 113], [0, 100]])
    assert model.predict({"film": [], "user": []}, DENSE[:0])["pair"].shape == (0, 2)


def test_what_is_wrong_is_a_sentence(folder):
    model = tessera.PackedModel(folder)
    film = {"film": [[1], [2]], "user": [[3], [4]]}
    for error, sentence, features, dense in [
        (tessera.NotFound, 'no feature "user": the model takes film, user', {"film": [1, 2]}, DENSE),
        (tessera.OutOfRange, 'feature "film", sample 1: id 6', {**film, "film": [1, 6]}, DENSE),
        (tessera.InvalidArgument, "feature film: it has text, but .* row numbers", {**film, "film": ["1", "2"]}, DENSE),
        (tessera.InvalidArgument, "feature film: it has text", {**film, "film": [["1"], []]}, DENSE),
        (tessera.InvalidArgument, "feature film: it has text", {**film, "film": (["1", "2"], [1, 1])}, DENSE),
        (tessera.InvalidArgument, "dense: it has text, but .* numbers as", film, [["1", "2"], ["3", "4"]]),
        (tessera.InvalidArgument, "a tuple of 1", {**film, "film": ([1, 2],)}, DENSE),
        (tessera.InvalidArgument, "lengths of feature .* must be", {**film, "film": [1, 2, 3]}, DENSE[:2]),
        (tessera.InvalidArgument, "dense is NULL", film, None),
        (tessera.InvalidArgument, "dense must be", film, DENSE[:, :1]),
    ]:
        with pytest.raises(error, match=sentence):
            model.predict(features, dense)
    with pytest.raises(LookupError, match="no packed model"):
        tessera.PackedModel(folder / "not")
    with pytest.raises(tessera.NotFound, match="no-such"):
        tessera.PackedModel(folder, kernel="no-such")


def test_columns_that_a_model_encodes_are_told_once(tmp_path, folder):
    config = {
        "model": {"embedding_dim": 4, "bottom_mlp": [4], "top_mlp": [4, 1]},
        "data": {"batch": 8},
        "column": [
            {"name": "click", "as": "label"},
            {"name": "age", "as": "dense", "transform": ["log1p", "standardise"]},
            {"name": "hour", "as": "dense"},
            {"name": "user", "as": "ids", "ids": "vocabulary"},
            {"name": "film", "as": "ids", "rows": 4},
        ],
    }
    data = {"click": [0, 1] * 16, "age": range(32), "hour": range(32), "user": [5, 6] * 16, "film": [0, 1, 2, 3] * 8}
    tessera.train(config, data, save=tmp_path / "saved")
    command = [sys.executable, "-m", "tessera", "quantize", "--load", tmp_path / "saved", "--save", tmp_path / "model"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert told.returncode == 0, told.stderr
    model = tessera.PackedModel(tmp_path / "model")
    assert model.encoded == {"age": "log1p and standardise", "user": "vocabulary"}
    with pytest.raises(ValueError, match="feature user: it has text, .* are applied by `tessera predict`"):
        model.predict({"user": ["5"], "film": [3]}, [[1.0, 2.0]])
    with pytest.warns(UserWarning, match="age by log1p and standardise, user by vocabulary") as warned:
        first = model.predict({"user": [2], "film": [3]}, np.ones((1, 2), np.float32))
    assert len(warned) == 1 and warned[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.predict({"user": [2], "film": [3]}, np.ones((1, 2), np.float32)) == first
        without = tessera.PackedModel(folder)
        without.predict({"film": [[1], [None][:0]], "user": [None, None]}, DENSE)
    assert without.encoded == {}


def test_sequences_are_packed_for_layers_that_take_them(tmp_path):
    tables = tessera.EmbeddingBagCollection([tessera.EmbeddingBagConfig(5, 4, "user")])
    seen = tessera.EmbeddingCollection([tessera.EmbeddingConfig(6, 4, "film", feature_names=["seen"])])
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    tables.set_weight("user", np.zeros((5, 4)))
    seen.set_weight("film", rows)
    layers = [
        {"name": "most", "type": "max_pooling", "inputs": ["film"]},
        {"name": "top", "type": "linear", "inputs": ["user", "most"], "options": {"width": 4}},
    ]
    graph = {"layers": layers, "heads": [{"name": "most", "input": "top", "loss": "mse"}]}
    values = {"top.weight": np.eye(4, 8, 4, dtype=np.float32), "top.bias": np.zeros(4, np.float32)}
    tessera.pack(tmp_path / "model", [tables, seen], graph, values, format="fp32")
    model = tessera.PackedModel(tmp_path / "model")
    assert model.features == {"user": 5, "seen": 6}
    got = model.predict({"user": [0, 1], "seen": [[2, 5, 0], []]})["most"]
    np.testing.assert_array_equal(got, [rows[5], np.zeros(4)])
    bare = {"layers": layers[1:], "heads": graph["heads"]}
    bare["layers"] = [{**layers[1], "inputs": ["user", "film"]}]
    with pytest.raises(ValueError, match="film"):
        tessera.pack(tmp_path / "no", [tables, seen], bare, values)
