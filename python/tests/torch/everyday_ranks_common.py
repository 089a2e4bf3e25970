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


def layer(width):
    """A layer with values to begin with."""
    made = nn.Linear(width, 1)
    with torch.no_grad():
        made.weight.copy_(torch.arange(float(width)).reshape(1, width) / width - 0.5)
        made.bias.zero_()
    return made


class Model(nn.Module):
    """A collection and a layer over it."""

    def __init__(self, tables):
        super().__init__()
        self.e, self.over = tables, layer(24)

    def forward(self, batch):
        rows = self.e(batch)
        return self.over(torch.cat([rows[key] for key in KEYS], 1))


def tables(weighted=False, mean=False, device="meta"):
    """A collection of bags."""
    kind = tr.PoolingType.MEAN if mean else tr.PoolingType.SUM
    made = [
        tr.EmbeddingBagConfig(num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"], pooling=kind)
        for name, n in SIZES.items()
    ]
    return tr.EmbeddingBagCollection(tables=made, is_weighted=weighted, device=torch.device(device))


def start(name):
    """The rows of a table to begin with."""
    return torch.arange(SIZES[name] * 8.0).reshape(SIZES[name], 8) / 20 - 1


def sharded(model, kinds, sharders, kernel="fused", fill=True):
    """A model whose tables are cut as kinds says by name, and begin with the rows of start() unless fill is False."""
    world = dist.get_world_size()
    cuts = {"row": lambda: tr.row_wise(compute_kernel=kernel),
            "column": lambda: tr.column_wise(ranks=list(range(world)), compute_kernel=kernel),
            "table": lambda: tr.table_wise(rank=world - 1, compute_kernel=kernel),
            "first": lambda: tr.table_wise(rank=0, compute_kernel=kernel), "copies": tr.data_parallel}  # fmt: skip
    plans = {}
    for path, part in model.named_modules():
        of_bags = isinstance(part, tr.EmbeddingBagCollection)
        if not of_bags and not isinstance(part, tr.EmbeddingCollection):
            continue
        configs = part.embedding_bag_configs() if of_bags else part.embedding_configs()
        asked = {config.name: cuts[kinds[config.name]]() for config in configs}
        sharder = next(sharder for sharder in sharders if isinstance(part, sharder.module_type))
        plans[path] = tr.construct_module_sharding_plan(part, asked, sharder, world, world, "cpu")
    env = tr.ShardingEnv.from_process_group(dist.group.WORLD)
    made = tr.DistributedModelParallel(model, env, CPU, tr.ShardingPlan(plans), sharders)
    for key, value in made.state_dict().items() if fill else ():
        if "embedding" not in key:
            continue
        rows = torch.arange(float(value.size().numel())).reshape(value.size()) / 20 - 1
        with torch.no_grad():
            if not hasattr(value, "local_shards"):
                value.copy_(rows)
                continue
            for shard in value.local_shards():
                (row, col), (n, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                shard.tensor.copy_(rows[row : row + n, col : col + cols])
    return made


def dmp(optimizer="EXACT_ADAGRAD", lr=0.1, cuts="rct", kernel="fused", ebc=None, model=Model, **more):
    """A sharded model: table r by rows, c by columns, t on the last rank, if cuts has them; others on rank 0."""
    params = {"optimizer": getattr(tr.EmbOptimType, optimizer), "learning_rate": lr, **more}
    sharder = tr.EmbeddingBagCollectionSharder(fused_params=params if kernel == "fused" else None)
    kinds = {name: kind if name in cuts else "first" for name, kind in zip("rct", ("row", "column", "table"))}
    return sharded(model(tables() if ebc is None else ebc), kinds, [sharder], kernel)


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
