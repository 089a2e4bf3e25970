#!/usr/bin/env python3
"""compare.py TESSERA PRESET...: exports each preset as ONNX and compares onnxruntime's scores with Tessera's.

Each model is trained for some steps on the preset's own generated data, so that no parameter has its start value.
Requests have lists of many lengths, empty ones too. A score may differ by 1e-5. The module `tessera` must be found
(PYTHONPATH, TESSERA_LIBRARY), and onnx and onnxruntime of PyPI. With --time it also says how long both take.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime

import tessera

SAMPLES = 64
TOLERANCE = 1e-5
SHORT = ["data.samples=1500", "data.test_samples=200", "data.epochs=1", "data.batch=128"]


def run(*command):
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def trained(program, preset, folder):
    job = folder / f"{preset}.toml"
    job.write_text(run(program, "model", "new", preset))
    changes = [word for change in SHORT for word in ("--set", change)]
    run(program, "train", "--config", job, "--save", folder / preset, *changes)
    return folder / preset


LONGEST = {"sasrec": ("c2", 50), "hstu": ("c2", 50), "bst": ("c2", 20)}  # rows of their tables of positions


def open_session(file):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # refusals are expected
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


def refuses(session, inputs):
    try:
        session.run(None, inputs)
    except Exception as error:
        if "out of data bounds" in str(error) or "out of range" in str(error) or "out of bounds" in str(error):
            return
        raise
    raise SystemExit("an id or a sequence that Tessera refuses is answered")


def request(model, rng, lengths_of):
    """Features as Tessera takes them (values, lengths), and as ONNX does: [batch, length], filled up with -1."""
    ours, theirs = {}, {}
    for name, ids in model.features.items():
        lengths = lengths_of(name, rng).astype(np.int32)
        lists = [rng.integers(0, ids, n) for n in lengths]
        ours[name] = (np.concatenate(lists).astype(np.int64), lengths)
        padded = np.full((SAMPLES, max(1, int(lengths.max()))), -1, np.int64)
        for row, one in zip(padded, lists):
            row[: len(one)] = one
        theirs[name] = padded
    dense = rng.normal(size=(SAMPLES, model.dense_inputs)).astype(np.float32)
    return ours, theirs, dense


def lengths_for(preset):
    """Ids of each feature. Of transact and dlrm_hstu, a user's events have an item, an action and a time each."""
    events = {}

    def lengths(name, rng):
        if name in ("c0", "c1", "c5"):  # users and candidates of the presets
            return np.ones(SAMPLES)
        many = rng.integers(1 if preset == "two_tower" else 0, 9, SAMPLES)
        return events.setdefault("all", many) if preset in ("transact", "dlrm_hstu") else many

    return lengths


def check(program, preset, folder):
    checkpoint = trained(program, preset, folder)
    model = tessera.load_model(checkpoint)
    ours, theirs, dense = request(model, np.random.default_rng(5), lengths_for(preset))
    head = ["--head", "click"] if "click" in model.outputs else []
    file = folder / f"{preset}.onnx"
    run(program, "model", "export", checkpoint, "--onnx", file, *head)
    onnx.checker.check_model(str(file), full_check=True)
    session = open_session(file)
    inputs = {i.name: dense if i.name == "dense" else theirs[i.name] for i in session.get_inputs()}
    names = [o.name for o in session.get_outputs()]
    got = dict(zip(names, session.run(names, inputs)))
    expected = model.predict(ours, dense if model.dense_inputs else None)
    worst = 0.0
    for name in names:
        ours_here = expected[name].reshape(SAMPLES, -1)
        if got[name].shape != ours_here.shape:
            raise SystemExit(f"{preset}: {name} is {got[name].shape}, not {ours_here.shape}")
        if np.ptp(ours_here) < 1e-4:
            raise SystemExit(f"{preset}: all scores of {name} are equal, so nothing is compared")
        worst = max(worst, float(np.abs(got[name] - ours_here).max()))
    print(f"{preset}: {', '.join(names)}, {len(inputs)} inputs, at most {worst:.1e} apart", flush=True)
    if not worst <= TOLERANCE:
        raise SystemExit(f"{preset}: scores are {worst:.1e} apart, which is more than {TOLERANCE}")
    if preset == "dlrm":  # its bounds check is fatal
        for bad in (model.features["c1"], -2):
            refuses(session, {**inputs, "c1": np.where(theirs["c1"] < 0, -1, bad)})
    if preset in LONGEST:  # Tessera refuses a longer sequence, and so must the model
        name, longest = LONGEST[preset]
        refuses(session, {**inputs, name: np.zeros((SAMPLES, longest + 1), np.int64)})
        session.run(names, {**inputs, name: np.zeros((SAMPLES, longest), np.int64)})
    if "--time" in sys.argv:
        calls = {"tessera": lambda: model.predict(ours, dense), "onnx": lambda: session.run(names, inputs)}
        for what, call in calls.items():
            start = time.perf_counter()
            for _ in range(20):
                call()
            print(f"  {what}: {(time.perf_counter() - start) * 50:.2f} ms a batch of {SAMPLES}")


POOLED = """
[model]
embedding_dim = 8
bottom_mlp = [16, 8]
top_mlp = [16, 1]
[[table]]
name = "c0"
pooling = "mean"
[[table]]
name = "c1"
[data]
reader = "synthetic"
columns = 2
rows = [200, 100]
pooling = [3, 4]
dense = 4
samples = 3000
batch = 64
"""


def check_packed(program, folder):
    """Sums and means of bags, with weights of ids, of int4 rows, and of ids that are left out."""
    job = folder / "pooled.toml"
    job.write_text(POOLED)
    run(program, "train", "--config", job, "--save", folder / "pooled")
    rng = np.random.default_rng(1)
    for name, more in {"weighted": ["--weighted"], "int4": ["--weights", "int4", "--bounds-check", "ignore"]}.items():
        run(program, "quantize", "--load", folder / "pooled", "--save", folder / name, *more)
        model = tessera.load_model(folder / name)
        ours, inputs = {}, {"dense": rng.normal(size=(SAMPLES, 4)).astype(np.float32)}
        for feature, ids in model.features.items():
            lengths = rng.integers(0, 6, SAMPLES).astype(np.int32)
            padded, weights = np.full((SAMPLES, 5), -1, np.int64), rng.random((SAMPLES, 5)).astype(np.float32)
            for row, n in enumerate(lengths):
                padded[row, :n] = rng.integers(0, ids + (9 if name == "int4" else 0), n)
            there = padded >= 0
            ours[feature] = (padded[there], lengths, weights[there])[: 3 if model.is_weighted else 2]
            inputs[feature] = padded
            if model.is_weighted:
                inputs[feature + ".weights"] = weights
        file = folder / f"{name}.onnx"
        run(program, "model", "export", folder / name, "--onnx", file)
        got = open_session(file).run(None, inputs)[0][:, 0]
        expected = next(iter(model.predict(ours, inputs["dense"]).values()))
        worst = float(np.abs(got - expected).max())
        print(f"{name}: at most {worst:.1e} apart", flush=True)
        if not worst <= TOLERANCE or np.ptp(expected) < 1e-3:
            raise SystemExit(f"{name}: scores are {worst:.1e} apart, in a range of {np.ptp(expected):.1e}")


JOB = """
[data]
reader = "csv"
path = "{path}"
batch = 64
epochs = 3
test = "random"
test_fraction = 0.1
[[column]]
name = "click"
as = "label"
[[column]]
name = "user"
ids = "vocabulary"
[[column]]
name = "tags"
ids = "vocabulary"
separator = "|"
[[column]]
name = "film"
ids = "hash"
rows = 50
[[column]]
name = "price"
as = "dense"
transform = ["log1p", "standardise"]
missing = "mean"
[[column]]
name = "no price"
column = "price"
as = "dense"
take = "missing"
[[column]]
name = "price range"
column = "price"
ids = "bucket"
bounds = [1, 2.5, 10.1, 40]
[[column]]
name = "when"
column = "time"
as = "dense"
take = "hour"
[model]
embedding_dim = 8
bottom_mlp = [16, 8]
top_mlp = [16, 1]
"""


def check_columns(program, folder):
    """A model of texts, lists, hashes, missing numbers and times, whose ONNX inputs are its data's columns."""
    rng = np.random.default_rng(3)
    rows = 600
    data = {
        "user": [f"u{i}" for i in rng.integers(0, 30, rows)],
        "tags": ["|".join(f"t{i}" for i in rng.integers(0, 9, n)) for n in rng.integers(0, 4, rows)],
        "film": [f"f{i}" for i in rng.integers(0, 40, rows)],
        "price": np.where(rng.random(rows) < 0.1, np.nan, np.round(rng.gamma(1, 9, rows), 1)),
        "time": [f"2024-03-{1 + i % 28:02d} {i % 24:02d}:15:00" for i in range(rows)],
    }
    file = folder / "rows.csv"
    with open(file, "w") as out:
        print("click,user,tags,film,price,time", file=out)
        for i in range(rows):
            price = "" if np.isnan(data["price"][i]) else data["price"][i]
            texts = [data[name][i] for name in ("user", "tags", "film")]
            print(i * 7 % 3 % 2, *texts, price, data["time"][i], sep=",", file=out)
    job = folder / "columns.toml"
    job.write_text(JOB.format(path=file))
    run(program, "train", "--config", job, "--save", folder / "columns")
    model = tessera.load_model(folder / "columns")
    file = folder / "columns.onnx"
    said = run(program, "model", "export", folder / "columns", "--onnx", file, "--inputs", "columns")
    notes = ["film: rows of its table, because ONNX cannot compute a hash", 'when: the hour of "time", as a number']
    for note in notes:
        if note not in " ".join(said.split()):
            raise SystemExit(f"{note!r} is missing in\n{said}")
    onnx.checker.check_model(str(file), full_check=True)
    session = open_session(file)
    data["user"][:3] = ["nobody", "", "u1"]
    tags = [text.split("|") if text else [] for text in data["tags"]]
    longest = max(map(len, tags))
    inputs = {
        "user": np.array(data["user"], object)[:, None],
        "tags": np.array([one + [""] * (longest - len(one)) for one in tags], object),
        "film": np.full((rows, 1), -1, np.int64),
        "price": data["price"][:, None],
        "when": (np.arange(rows) % 24).astype(float)[:, None],
    }
    got = session.run(None, inputs)[0][:, 0]
    data["film"] = [""] * rows
    expected = next(iter(model.predict(data).values()))
    worst = float(np.abs(got - expected).max())
    print(f"columns: {', '.join(i.name for i in session.get_inputs())}, at most {worst:.1e} apart")
    if not worst <= TOLERANCE or np.ptp(expected) < 1e-3:
        raise SystemExit(f"columns: scores are {worst:.1e} apart, in a range of {np.ptp(expected):.1e}")


def main():
    program, *presets = [word for word in sys.argv[1:] if not word.startswith("--")]
    with tempfile.TemporaryDirectory() as name:
        for preset in presets:
            check(program, preset, pathlib.Path(name))
        check_packed(program, pathlib.Path(name))
        check_columns(program, pathlib.Path(name))


if __name__ == "__main__":
    main()
