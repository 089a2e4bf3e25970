"""On each rank: random models in TorchRec and in tessera.torch, the same weights and batches, step by step.

beside_torchrec.py CASES [SEED]: prints a line for each case, and fails where outputs or updated rows differ.
"""

import random
import sys

import torch
import torch.distributed as dist
import torchrec
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.sharding_plan import column_wise, construct_module_sharding_plan, row_wise, table_wise
from torchrec.distributed.types import ShardingEnv, ShardingPlan
from fbgemm_gpu.split_embedding_configs import EmbOptimType

import tessera.torch as tt

OPTIMIZERS = {  # that TorchRec has on the CPU
    "EXACT_SGD": {},
    "EXACT_ADAGRAD": {"eps": 1e-6},
    "EXACT_ROWWISE_ADAGRAD": {"eps": 1e-6},
}


def whole(value):
    """A table of TorchRec's state dict, on every rank."""
    if not hasattr(value, "gather"):
        return value.full_tensor() if hasattr(value, "full_tensor") else value
    out = torch.empty(value.size())
    value.gather(0, out if dist.get_rank() == 0 else None)
    dist.broadcast(out, 0)
    return out


def batch_of(features, rows, samples, weighted, generator):
    lengths = torch.randint(0, 5, (len(features) * samples,), generator=generator, dtype=torch.int32)
    counts = lengths.reshape(len(features), samples).sum(1).tolist()
    values = torch.cat([torch.randint(0, rows[f], (n,), generator=generator) for f, n in zip(features, counts)])
    weights = torch.rand(len(values), generator=generator) if weighted else None
    return values, lengths, weights


def case(choose, number):
    world, rank = dist.get_world_size(), dist.get_rank()
    weighted = choose.random() < 0.3
    # MEAN is for all tables, cut alike: otherwise TorchRec 1.9.2 divides columns of SUM tables, or divides twice.
    pooling = "SUM" if weighted else choose.choice(["SUM", "MEAN"])
    optimizer = choose.choice(list(OPTIMIZERS))
    configs, cuts, rows = [], {}, {}
    of_mean = choose.choice(["row", "table"])
    for t in range(choose.randint(1, 3)):
        features = [f"f{t}_{i}" for i in range(choose.randint(1, 2))]
        common = dict(num_embeddings=choose.randint(5, 60), embedding_dim=4 * choose.randint(1, 4),
                      name=f"t{t}", feature_names=features)  # fmt: skip
        common["pooling"] = pooling
        configs.append(common)
        rows.update({f: common["num_embeddings"] for f in features})
        kinds = [("row", None), ("table", choose.randrange(world))]
        if common["embedding_dim"] % (4 * world) == 0 and "ROWWISE" not in optimizer:
            kinds.append(("column", list(range(world))))
        cuts[f"t{t}"] = choose.choice([k for k in kinds if pooling == "SUM" or k[0] == of_mean])
    params = {"learning_rate": 0.1, **OPTIMIZERS[optimizer]}

    def plan(of):
        made = {"row": of["row"], "table": of["table"], "column": of["column"]}
        return {t: made[k]() if a is None else made[k](a) for t, (k, a) in cuts.items()}

    def made(config, c, poolings):
        return config(**{**c, "pooling": getattr(poolings, pooling)})

    if rank == 0:
        print(f"case {number}: {'weighted ' if weighted else ''}{pooling} {optimizer} {cuts}", flush=True)
    theirs = torchrec.EmbeddingBagCollection(
        tables=[made(torchrec.EmbeddingBagConfig, c, torchrec.PoolingType) for c in configs],
        device=torch.device("meta"),
        is_weighted=weighted,
    )
    sharder = EmbeddingBagCollectionSharder(fused_params={"optimizer": EmbOptimType[optimizer], **params})
    their_plan = construct_module_sharding_plan(
        theirs,
        plan({"row": fused_row_wise, "table": fused_table_wise, "column": fused_column_wise}),
        sharder,
        world,
        world,
        "cpu",
    )
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    theirs = torchrec.distributed.DistributedModelParallel(
        torch.nn.ModuleDict({"e": theirs}), env, torch.device("cpu"), ShardingPlan({"e": their_plan}), [sharder]
    )
    ours = tt.EmbeddingBagCollection(
        tables=[made(tt.EmbeddingBagConfig, c, tt.PoolingType) for c in configs], device="meta", is_weighted=weighted
    )
    our_sharder = tt.EmbeddingBagCollectionSharder(fused_params={"optimizer": tt.EmbOptimType[optimizer], **params})
    our_plan = tt.construct_module_sharding_plan(
        ours, plan({"row": tt.row_wise, "table": tt.table_wise, "column": tt.column_wise})
    )
    ours = tt.DistributedModelParallel(
        torch.nn.ModuleDict({"e": ours}), plan=tt.ShardingPlan({"e": our_plan}), sharders=[our_sharder], group=GROUP
    )
    tables = {key.replace("module.", ""): whole(value) for key, value in theirs.state_dict().items()}
    assert set(tables) == set(ours.state_dict()), (set(tables), set(ours.state_dict()))
    ours.load_state_dict(tables)

    generator = torch.Generator().manual_seed(1000 * number + rank)
    for _ in range(3):
        samples = choose.randint(1, 5)
        values, lengths, weights = batch_of(list(rows), rows, samples, weighted, generator)
        a = theirs.module.e(torchrec.KeyedJaggedTensor(list(rows), values, weights, lengths))
        kind = choose.choice([tt.KeyedJaggedTensor, torchrec.KeyedJaggedTensor])  # TorchRec's own is taken, too
        b = ours.module["e"](kind(list(rows), values, weights, lengths))
        a = a.wait() if hasattr(a, "wait") else a
        assert set(a.keys()) == set(b.keys())  # TorchRec's order is that of its shardings
        x, y = torch.cat([a[key] for key in b.keys()], 1), b.values()
        torch.testing.assert_close(y, x, rtol=1e-4, atol=1e-5)
        grad = torch.randn(x.shape, generator=generator)
        (x * grad).sum().backward()
        (y * grad).sum().backward()
    now = ours.full_state_dict()
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(now[key.replace("module.", "")], whole(value), rtol=1e-3, atol=1e-4)


def sequence_case(choose, number):
    """Collections that give a row for each id."""
    world, rank = dist.get_world_size(), dist.get_rank()
    optimizer, dim = choose.choice(list(OPTIMIZERS)), 4 * choose.randint(1, 4)
    rows, configs, cuts = {}, [], {}
    for t in range(choose.randint(1, 3)):
        features = [f"f{t}_{i}" for i in range(choose.randint(1, 2))]
        configs.append(
            dict(num_embeddings=choose.randint(5, 60), embedding_dim=dim, name=f"t{t}", feature_names=features)
        )
        rows.update({f: configs[-1]["num_embeddings"] for f in features})
        cuts[f"t{t}"] = choose.choice([("row", None), ("table", choose.randrange(world))])
    params = {"learning_rate": 0.1, **OPTIMIZERS[optimizer]}
    if rank == 0:
        print(f"case {number}: sequences {optimizer} {cuts}", flush=True)
    theirs = torchrec.EmbeddingCollection(
        tables=[torchrec.EmbeddingConfig(**c) for c in configs], device=torch.device("meta")
    )
    sharder = EmbeddingCollectionSharder(fused_params={"optimizer": EmbOptimType[optimizer], **params})
    wanted = {t: fused_row_wise() if k == "row" else fused_table_wise(a) for t, (k, a) in cuts.items()}
    their_plan = construct_module_sharding_plan(theirs, wanted, sharder, world, world, "cpu")
    env = ShardingEnv.from_process_group(dist.group.WORLD)
    theirs = torchrec.distributed.DistributedModelParallel(
        torch.nn.ModuleDict({"e": theirs}), env, torch.device("cpu"), ShardingPlan({"e": their_plan}), [sharder]
    )
    ours = tt.EmbeddingCollection(tables=[tt.EmbeddingConfig(**c) for c in configs], device="meta")
    our_plan = tt.construct_module_sharding_plan(
        ours, {t: tt.row_wise() if k == "row" else tt.table_wise(a) for t, (k, a) in cuts.items()}
    )
    our_sharder = tt.EmbeddingCollectionSharder(fused_params={"optimizer": tt.EmbOptimType[optimizer], **params})
    ours = tt.DistributedModelParallel(
        torch.nn.ModuleDict({"e": ours}), plan=tt.ShardingPlan({"e": our_plan}), sharders=[our_sharder], group=GROUP
    )
    ours.load_state_dict({key.replace("module.", ""): whole(value) for key, value in theirs.state_dict().items()})
    generator = torch.Generator().manual_seed(1000 * number + rank)
    for _ in range(3):
        values, lengths, _ = batch_of(list(rows), rows, choose.randint(1, 5), False, generator)
        a = theirs.module.e(torchrec.KeyedJaggedTensor(list(rows), values, lengths=lengths))
        b = ours.module["e"](torchrec.KeyedJaggedTensor(list(rows), values, lengths=lengths))
        a = a.wait() if hasattr(a, "wait") else a
        assert set(a) == set(b) == set(rows)
        loss_a, loss_b = [], []
        for name in rows:
            torch.testing.assert_close(b[name].lengths().long(), a[name].lengths().long())
            torch.testing.assert_close(b[name].values(), a[name].values(), rtol=1e-4, atol=1e-5)
            grad = torch.randn(b[name].values().shape, generator=generator)
            loss_a.append((a[name].values() * grad).sum())
            loss_b.append((b[name].values() * grad).sum())
        sum(loss_a).backward()
        sum(loss_b).backward()
    now = ours.full_state_dict()
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(now[key.replace("module.", "")], whole(value), rtol=1e-3, atol=1e-4)


def fused_row_wise():  # on the CPU TorchRec takes "dense" otherwise
    return row_wise(compute_kernel="fused")


def fused_table_wise(rank):
    return table_wise(rank=rank, compute_kernel="fused")


def fused_column_wise(ranks):
    return column_wise(ranks=ranks, compute_kernel="fused")


if __name__ == "__main__":
    cases, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    dist.init_process_group("gloo")
    GROUP = tt.process_group()
    for i in range(cases):
        (sequence_case if i % 4 == 3 else case)(random.Random(seed + i), seed + i)
    if dist.get_rank() == 0:
        print("all agree", flush=True)
    GROUP.barrier()
    dist.destroy_process_group()
