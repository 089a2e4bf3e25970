"""Cases whose TorchRec side was recorded (tests/torch/torchrec_cases.py), through the NumPy API."""

import json
from pathlib import Path

import numpy as np

import tessera

FILE = Path(__file__).parent / "recorded.json"
OPTIMIZERS = {"EXACT_SGD": {}, "EXACT_ADAGRAD": {"eps": 1e-6}, "EXACT_ROWWISE_ADAGRAD": {"eps": 1e-6}}
CUTS = {"row": lambda _: tessera.row_wise(), "table": tessera.table_wise, "column": tessera.column_wise}


def _made(value):
    if isinstance(value, dict):
        if "dtype" in value:
            return np.array(value["data"], value["dtype"]).reshape(value["shape"])
        return {key: _made(inner) for key, inner in value.items()}
    return [_made(inner) for inner in value] if isinstance(value, list) else value


def cases(world):
    """Those of so many ranks."""
    every = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
    return [_made(case) for case in every if case["world"] == world]


def of_rank(case, rank):
    """TorchRec's recorded data of a rank."""
    told = {key: case[key][rank] for key in ("outputs", "weight_grads")}
    return {**told, "start": case["start"], "end": case["end"]}


def _tables(case, group):
    kind = tessera.EmbeddingBagConfig if case["kind"] == "bags" else tessera.EmbeddingConfig
    pooling = {"pooling": case["pooling"]} if case["kind"] == "bags" else {}
    configs = [kind(t["rows"], t["dim"], t["name"], feature_names=t["features"], **pooling) for t in case["tables"]]
    name = case["optimizer"]
    options = {
        "optimizer": tessera.Optimizer(name.lower(), learning_rate=0.1, **OPTIMIZERS[name]),
        "planner": tessera.Planner(shardings={t["name"]: CUTS[t["cut"][0]](t["cut"][1]) for t in case["tables"]}),
        "group": group,
    }
    if case["kind"] == "bags":
        return tessera.EmbeddingBagCollection(configs, is_weighted=case["weighted"], **options)
    return tessera.EmbeddingCollection(configs, **options)


def ours(case, rank, group):
    """Outputs and rows of a case on this rank."""
    tables = _tables(case, group)
    for name, rows in case["start"].items():
        tables.set_weight(name, rows)
    out = {"outputs": []}
    for batches in case["batches"]:
        batch = batches[rank]
        more = {key: batch[key] for key in ("weights", "strides", "inverse") if key in batch}
        step = tables.forward(batch["ids"], batch["lengths"], **more)
        out["outputs"].append(
            step.output.copy() if case["kind"] == "bags" else {k: v.copy() for k, v in step.outputs.items()}
        )
        step.backward(batch["grad"] if case["kind"] == "bags" else batch["grads"])
    out["end"] = {name: tables.weight(name) for name in tables.tables}
    return out


def check(case, mine, rank):
    expected = of_rank(case, rank)
    for a, b in zip(mine["outputs"], expected["outputs"]):
        for key in a if isinstance(a, dict) else [...]:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-4, atol=1e-5)
    for name, rows in expected["end"].items():
        np.testing.assert_allclose(mine["end"][name], rows, rtol=1e-3, atol=1e-4)


def check_all():
    """On each rank; how many there were."""
    group = tessera.ProcessGroup(timeout_s=20)
    of_world = cases(group.world_size)
    for case in of_world:
        try:
            check(case, ours(case, group.rank, group), group.rank)
        except AssertionError as error:
            raise AssertionError(f"case {case['seed']}: {error}") from None
    group.barrier()
    return len(of_world)
