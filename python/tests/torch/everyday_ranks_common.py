"""The small programs of every day on two ranks share this: features, models, and their numbers."""

import torch
import torch.distributed as dist
from torch import nn

from everyday_common import CPU, tr

PROGRAMS = {}
KEYS = ["fr", "fc", "ft"]
SIZES = {"r": 9, "c": 5, "t": 6}


def program(function):
    """Notes a program."""
    PROGRAMS[function.__name__] = function
    return function


def features(step=0, samples=3, weights=None, **more):
    """A batch of this rank."""
    generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
    lengths = torch.randint(0, 4, (3, samples), generator=generator, dtype=torch.int32)
    ids = [torch.randint(0, SIZES[k[1]], (int(n.sum()),), generator=generator) for k, n in zip(KEYS, lengths)]
    values = torch.cat(ids)
    given = torch.rand(len(values), generator=generator) if weights else None
    return tr.KeyedJaggedTensor(KEYS, values, given, lengths=lengths.reshape(-1), **more)


class Model(nn.Module):
    """A collection and a layer over it."""

    def __init__(self, tables):
        super().__init__()
        self.e, self.over = tables, nn.Linear(24, 1)
        with torch.no_grad():
            self.over.weight.copy_(torch.arange(24.0).reshape(1, 24) / 24 - 0.5)
            self.over.bias.zero_()

    def forward(self, batch):
        rows = self.e(batch)
        return self.over(torch.cat([rows[key] for key in KEYS], 1))


def tables(weighted=False, mean=False):
    """A collection on the meta device."""
    kind = tr.PoolingType.MEAN if mean else tr.PoolingType.SUM
    made = [
        tr.EmbeddingBagConfig(num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"], pooling=kind)
        for name, n in SIZES.items()
    ]
    return tr.EmbeddingBagCollection(tables=made, is_weighted=weighted, device=torch.device("meta"))


def start(name):
    """The rows of a table to begin with."""
    return torch.arange(SIZES[name] * 8.0).reshape(SIZES[name], 8) / 20 - 1


def dmp(optimizer="EXACT_ADAGRAD", lr=0.1, cuts="rct", kernel="fused", ebc=None, model=Model, **more):
    """A sharded model: table r by rows, c by columns, t on the last rank, if cuts has them; others on rank 0."""
    world = dist.get_world_size()
    ebc = tables() if ebc is None else ebc
    params = {"optimizer": getattr(tr.EmbOptimType, optimizer), "learning_rate": lr, **more}
    sharder = tr.EmbeddingBagCollectionSharder(fused_params=params if kernel == "fused" else None)
    asked = {name: tr.table_wise(rank=0, compute_kernel=kernel) for name in SIZES}
    if "r" in cuts:
        asked["r"] = tr.row_wise(compute_kernel=kernel)
    if "c" in cuts:
        asked["c"] = tr.column_wise(ranks=list(range(world)), compute_kernel=kernel)
    if "t" in cuts:
        asked["t"] = tr.table_wise(rank=world - 1, compute_kernel=kernel)
    plan = tr.construct_module_sharding_plan(ebc, asked, sharder, world, world, "cpu")
    env = tr.ShardingEnv.from_process_group(dist.group.WORLD)
    made = tr.DistributedModelParallel(model(ebc), env, CPU, tr.ShardingPlan({"e": plan}), [sharder])
    for key, value in made.state_dict().items():
        for shard in value.local_shards() if hasattr(value, "local_shards") else ():
            (row, col), (n, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            with torch.no_grad():
                shard.tensor.copy_(start(key.split(".")[-2])[row : row + n, col : col + cols])
    return made


def whole(model):
    """All values of a model, with tables put together, by key."""
    out = {}
    for key, value in sorted(model.state_dict().items()):
        if hasattr(value, "local_shards"):
            rows = torch.zeros(value.size())
            for shard in value.local_shards():
                (row, col), (n, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                rows[row : row + n, col : col + cols] = shard.tensor.detach()
            dist.all_reduce(rows)
            value = rows
        out[key] = value.detach().double().reshape(-1).tolist()
    return out


def dense_of(model):
    return [p for name, p in model.named_parameters() if "embedding" not in name]


def train(model, optimizers=(), steps=3, schedules=(), first=0, **more):
    for step in range(first, first + steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(features(step, **more)).pow(2).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
        for schedule in schedules:
            schedule.step()
    return model


def equal_on_ranks(model):
    """Whether the dense part is the same on all ranks."""
    flat = torch.cat([p.detach().reshape(-1) for p in dense_of(model)])
    every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat)
    return all(torch.equal(flat, other) for other in every)
