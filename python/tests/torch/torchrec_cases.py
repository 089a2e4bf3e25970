"""Random cases for TorchRec and tessera.torch, as plain data, and TorchRec's side of one.

A case is what a seed says: tables, how they are cut, an optimizer, and three batches for each rank. ``theirs`` runs it
in TorchRec, on all ranks: rows before and after, outputs, gradients of the ids' weights. As a program, on each rank,

torchrec_cases.py FILE CASES SEED adds so many cases with TorchRec's side to a file of JSON, for tests/recorded.py.
"""

import json
import sys

import random

import numpy as np
import torch
import torch.distributed as dist
import torchrec
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan

OPTIMIZERS = {  # that TorchRec has on the CPU
    "EXACT_SGD": {},
    "EXACT_ADAGRAD": {"eps": 1e-6},
    "EXACT_ROWWISE_ADAGRAD": {"eps": 1e-6},
}
FUSED = "fused"  # on the CPU TorchRec takes "dense" otherwise


def batch_of(case, samples, strides, generator):
    """A rank's ids, key-major, and the gradient of its output."""
    rows = {f: table["rows"] for table in case["tables"] for f in table["features"]}
    lengths = generator.integers(0, 5, sum(strides))
    ends = np.cumsum([0, *strides])
    counts = [int(lengths[a:b].sum()) for a, b in zip(ends, ends[1:])]
    ids = np.concatenate([generator.integers(0, n, count) for n, count in zip(rows.values(), counts)])
    out = {"ids": ids.astype(np.int64), "lengths": lengths.astype(np.int32)}
    if case["weighted"]:
        out["weights"] = generator.random(len(ids)).astype(np.float32)
    if case["variable"]:
        out["strides"] = strides
        out["inverse"] = np.stack([generator.integers(0, n, samples) for n in strides]).astype(np.int64)
    dims = {f: table["dim"] for table in case["tables"] for f in table["features"]}
    if case["kind"] == "bags":
        out["grad"] = generator.normal(size=(samples, sum(dims.values()))).astype(np.float32)
    else:
        out["grads"] = {f: generator.normal(size=(n, dims[f])).astype(np.float32) for f, n in zip(rows, counts)}
    return out


def case_of(seed, world, most_rows=60, most_dim=16):
    """The case of a seed. Every fourth one has sequences, every sixth variable batches."""
    choose, generator = random.Random(seed), np.random.default_rng(seed)
    sequences, variable = seed % 4 == 3, seed % 6 == 4
    weighted = not sequences and choose.random() < 0.3
    # MEAN is used for all tables, sharded alike; otherwise TorchRec 1.9.2 divides columns of SUM tables, or divides
    # twice.
    pooling = "NONE" if sequences else "SUM" if weighted or variable else choose.choice(["SUM", "MEAN"])
    known = [o for o in OPTIMIZERS if not variable or o != "EXACT_ADAGRAD"]  # which FBGEMM has not for these
    optimizer, dim = choose.choice(known), 4 * choose.randint(1, most_dim // 4)
    tables, of_mean = [], choose.choice(["row", "table"])
    for t in range(choose.randint(1, 3)):
        width = dim if sequences else 4 * choose.randint(1, most_dim // 4)
        features = [f"f{t}_{i}" for i in range(choose.randint(1, 2))]
        kinds = [["row", None], ["table", choose.randrange(world)]]
        if not sequences and width % (4 * world) == 0 and "ROWWISE" not in optimizer:
            kinds.append(["column", list(range(world))])
        cut = choose.choice([k for k in kinds if pooling != "MEAN" or k[0] == of_mean])
        rows = choose.randint(5, most_rows)
        tables.append({"name": f"t{t}", "rows": rows, "dim": width, "features": features, "cut": cut})
    case = {"seed": seed, "world": world, "kind": "sequences" if sequences else "bags", "pooling": pooling,
            "weighted": weighted, "variable": variable, "optimizer": optimizer, "tables": tables}  # fmt: skip
    case["batches"] = []
    for _ in range(3):
        samples = choose.randint(1, 5)
        # The same on all ranks, because TorchRec gathers rows of variable batches in one size.
        strides = [choose.randint(1, samples) if variable else samples for table in tables for _ in table["features"]]
        case["batches"].append([batch_of(case, samples, strides, generator) for _ in range(world)])
    return case


def whole(value):
    """A table of TorchRec's state dict, on every rank."""
    if not hasattr(value, "gather"):
        return value.full_tensor() if hasattr(value, "full_tensor") else value
    out = torch.empty(value.size())
    value.gather(0, out if dist.get_rank() == 0 else None)
    dist.broadcast(out, 0)
    return out


def their_features(case, batch, weights=None):
    keys = [f for table in case["tables"] for f in table["features"]]
    more = {}
    if case["variable"]:
        more["stride_per_key_per_rank"] = [[n] for n in batch["strides"]]
        more["inverse_indices"] = (keys, torch.from_numpy(batch["inverse"]))
    return torchrec.KeyedJaggedTensor(
        keys, torch.from_numpy(batch["ids"]), weights, torch.from_numpy(batch["lengths"]), **more
    )


def _their_configs(case):
    kind = torchrec.EmbeddingBagConfig if case["kind"] == "bags" else torchrec.EmbeddingConfig
    pooling = {"pooling": torchrec.PoolingType[case["pooling"]]} if case["kind"] == "bags" else {}
    return [
        kind(num_embeddings=t["rows"], embedding_dim=t["dim"], name=t["name"], feature_names=t["features"], **pooling)
        for t in case["tables"]
    ]


def _their_model(case):
    fused = {"optimizer": EmbOptimType[case["optimizer"]], "learning_rate": 0.1, **OPTIMIZERS[case["optimizer"]]}
    if case["kind"] == "bags":
        module = torchrec.EmbeddingBagCollection(
            _their_configs(case), is_weighted=case["weighted"], device=torch.device("meta")
        )
        sharder = EmbeddingBagCollectionSharder(fused_params=fused)
    else:
        module = torchrec.EmbeddingCollection(_their_configs(case), device=torch.device("meta"))
        sharder = EmbeddingCollectionSharder(fused_params=fused)
    cuts = {
        "row": lambda _: row_wise(compute_kernel=FUSED),
        "table": lambda rank: table_wise(rank=rank, compute_kernel=FUSED),
        "column": lambda ranks: column_wise(ranks=ranks, compute_kernel=FUSED),
    }
    # On 4 ranks, sums of TorchRec's row-wise tables are not always those of the rows, so tables are whole there.
    tables = [
        (t["name"], t["cut"] if case["world"] < 4 or t["cut"][0] != "row" else ["table", 0]) for t in case["tables"]
    ]
    wanted = {name: cuts[cut](where) for name, (cut, where) in tables}
    plan = construct_module_sharding_plan(module, wanted, sharder, case["world"], case["world"], "cpu")
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    return torchrec.distributed.DistributedModelParallel(
        torch.nn.ModuleDict({"e": module}), env, torch.device("cpu"), ShardingPlan({"e": plan}), [sharder]
    )


def _tables(model):
    named = {key.replace("module.", ""): whole(value) for key, value in model.state_dict().items()}
    return {key.split(".")[-2]: value.clone() for key, value in named.items()}


def _weight_gradient(case, batch, tables):
    """The gradient of each id's weight, from the unsharded collection with the same rows."""
    module = torchrec.EmbeddingBagCollection(_their_configs(case), is_weighted=True, device=torch.device("cpu"))
    for name, rows in tables.items():
        module.embedding_bags[name].weight.data.copy_(rows)
    weights = torch.from_numpy(batch["weights"].copy()).requires_grad_()
    out = module(their_features(case, batch, weights))
    keys = [f for table in case["tables"] for f in table["features"]]
    (torch.cat([out[key] for key in keys], 1) * torch.from_numpy(batch["grad"])).sum().backward()
    return weights.grad.numpy()


def theirs(case):
    """TorchRec's result for a case, on this rank."""
    torch.manual_seed(case["seed"])
    model = _their_model(case)
    keys = [f for table in case["tables"] for f in table["features"]]
    out = {"start": {name: rows.numpy() for name, rows in _tables(model).items()}, "outputs": [], "weight_grads": []}
    for batches in case["batches"]:
        batch = batches[dist.get_rank()]
        if case["weighted"] and not case["variable"]:
            out["weight_grads"].append(_weight_gradient(case, batch, _tables(model)))
        weights = torch.from_numpy(batch["weights"].copy()) if case["weighted"] else None
        rows = model.module.e(their_features(case, batch, weights))
        rows = rows.wait() if hasattr(rows, "wait") else rows
        if case["kind"] == "bags":
            pooled = torch.cat([rows[key] for key in keys], 1)  # TorchRec's order is that of its shardings
            out["outputs"].append(pooled.detach().numpy().copy())
            (pooled * torch.from_numpy(batch["grad"])).sum().backward()
        else:
            out["outputs"].append({key: rows[key].values().detach().numpy().copy() for key in keys})
            sum((rows[key].values() * torch.from_numpy(batch["grads"][key])).sum() for key in keys).backward()
    out["end"] = {name: rows.numpy() for name, rows in _tables(model).items()}
    return out


def as_json(value):
    """Arrays as what recorded.py makes arrays of again: type, shape, and nine digits."""
    if isinstance(value, np.ndarray):
        data = value.reshape(-1).tolist()
        if value.dtype.kind == "f":
            data = [float(f"{number:.9g}") for number in data]
        return {"dtype": str(value.dtype), "shape": list(value.shape), "data": data}
    if isinstance(value, dict):
        return {key: as_json(inner) for key, inner in value.items()}
    return [as_json(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    dist.init_process_group("gloo")
    first = int(sys.argv[3])
    with open(sys.argv[1] if dist.get_rank() == 0 else "/dev/null", "a", encoding="utf-8") as file:
        for number in range(first, first + int(sys.argv[2])):
            recorded = case_of(number, dist.get_world_size(), most_rows=10, most_dim=8)
            mine, everybodys = theirs(recorded), [None] * dist.get_world_size()
            dist.all_gather_object(everybodys, mine)
            told = {key: [one[key] for one in everybodys] for key in ("outputs", "weight_grads")}  # by rank and step
            recorded.update(told, start=mine["start"], end=mine["end"], torch=torch.__version__,
                            torchrec=torchrec.__version__)  # fmt: skip
            file.write(json.dumps(as_json(recorded), separators=(",", ":")) + "\n")
    dist.destroy_process_group()
