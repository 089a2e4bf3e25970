"""Small programs of every day on two ranks: everyday_ranks.py torchrec|tessera [NAME...] tells what each comes to."""

import copy
import io
import json
import os
import sys
import warnings

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
        tr.EmbeddingBagConfig(
            num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"], pooling=kind
        )
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


@program
def optimizers():
    return {name: whole(train(dmp(name))) for name in ("EXACT_SGD", "EXACT_ADAGRAD", "EXACT_ROWWISE_ADAGRAD")}


@program
def schedules():
    kinds = torch.optim.lr_scheduler
    out = []
    for make in (
        lambda o: kinds.StepLR(o, 1, 0.5), lambda o: kinds.MultiStepLR(o, [1, 2], 0.1),
        lambda o: kinds.PolynomialLR(o, 4, 2.0), lambda o: kinds.MultiplicativeLR(o, lambda _: 0.7),
        lambda o: kinds.CosineAnnealingWarmRestarts(o, 2),
        lambda o: kinds.CyclicLR(o, 0.01, 0.2, 2, cycle_momentum=False),
        lambda o: kinds.ChainedScheduler([kinds.ConstantLR(o, 0.5, 2), kinds.ExponentialLR(o, 0.5)]),
        lambda o: kinds.LambdaLR(o, lambda step: min(1.0, (step + 1) / 3)),
    ):  # fmt: skip
        model = dmp("EXACT_SGD", 0.2)
        dense = torch.optim.SGD(dense_of(model), lr=0.1)
        train(model, [model.fused_optimizer, dense], 4, [make(model.fused_optimizer), make(dense)])
        out.append(whole(model))
    return out


@program
def schedule_state():
    model = dmp("EXACT_SGD", 0.2)
    schedule = torch.optim.lr_scheduler.LambdaLR(model.fused_optimizer, lambda step: 1 / (1 + step))
    train(model, [model.fused_optimizer], 2, [schedule])
    file = io.BytesIO()
    torch.save(schedule.state_dict(), file)
    file.seek(0)
    other = dmp("EXACT_SGD", 0.2)
    other.load_state_dict(model.state_dict())
    again = torch.optim.lr_scheduler.LambdaLR(other.fused_optimizer, lambda step: 1 / (1 + step))
    again.load_state_dict(torch.load(file))
    return whole(train(other, [other.fused_optimizer], 2, [again], first=2))


@program
def freeze_dense_by_name():
    model = dmp("EXACT_SGD", 0.2)
    for name, p in model.named_parameters():
        if name.endswith("over.weight"):
            p.requires_grad = False
    return whole(train(model, [torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)]))


@program
def accumulate():
    model = dmp("EXACT_ADAGRAD")
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    for step in range(4):
        (model(features(step)).pow(2).mean() / 2).backward()
        if step % 2:
            dense.step()
            dense.zero_grad()
    return whole(model)


@program
def clip_dense():
    model = dmp("EXACT_SGD")
    dense = torch.optim.SGD(dense_of(model), lr=0.5)
    norms = []
    for step in range(2):
        dense.zero_grad()
        model(features(step)).pow(2).mean().backward()
        norms.append(nn.utils.clip_grad_norm_(dense_of(model), 0.1).item())
        dense.step()
    return [norms, whole(model)]


@program
def clip_fused():
    model = dmp("EXACT_SGD", 0.5, gradient_clipping=True, max_gradient=0.05)
    return whole(train(model))


@program
def different_losses():
    model = dmp("EXACT_SGD", 0.5)
    for step in range(2):
        (model(features(step)).sum() * (1 + 3 * dist.get_rank())).backward()
    return whole(model)


@program
def mean_pooling():
    return whole(train(dmp("EXACT_SGD", 0.5, cuts="ct", ebc=tables(mean=True))))


@program
def weighted():
    model = dmp("EXACT_SGD", 0.5, ebc=tables(weighted=True))
    return whole(train(model, weights=True))


@program
def weight_gradients():
    model = dmp("EXACT_SGD", 0.5, cuts="ct", ebc=tables(weighted=True))
    batch = features(0, weights=True)
    batch.weights().requires_grad_()
    model(batch).pow(2).mean().backward()
    return [batch.weights().grad.tolist(), whole(model)]


@program
def a_rank_without_ids():
    model = dmp("EXACT_ADAGRAD")
    for step in range(2):
        batch = features(step)
        if dist.get_rank():
            none = torch.empty(0, dtype=torch.int64)
            batch = tr.KeyedJaggedTensor(KEYS, none, lengths=torch.zeros(9, dtype=torch.int32))
        model(batch).pow(2).mean().backward()
    return whole(model)


@program
def evaluation():
    model = train(dmp("EXACT_SGD", 0.5))
    model.eval()
    with torch.no_grad():
        out = model(features(7))
    before = whole(model)
    model.train()
    return [out.reshape(-1).tolist(), out.requires_grad, before == whole(model)]


@program
def combined_state():
    def made():
        model = dmp("EXACT_ADAGRAD")
        named = {name: p for name, p in model.named_parameters() if "embedding" not in name}
        dense = tr.KeyedOptimizerWrapper(named, lambda params: torch.optim.Adam(params, lr=0.05))
        return model, tr.CombinedOptimizer([("fused", model.fused_optimizer), ("dense", dense)])

    model, optimizer = made()
    train(model, [optimizer], 2)
    other, again = made()
    train(other, [again], 1)
    other.load_state_dict(model.state_dict())
    again.load_state_dict(optimizer.state_dict())
    return [whole(train(one, [o], 2, first=2)) for one, o in ((model, optimizer), (other, again))]


@program
def fused_state_saved():
    model, other = train(dmp("EXACT_ADAGRAD")), dmp("EXACT_ADAGRAD")
    state = copy.deepcopy(model.fused_optimizer.state_dict())
    other.load_state_dict(model.state_dict())
    other.fused_optimizer.load_state_dict(state)
    return [whole(train(one, steps=2, first=3)) for one in (model, other)]


@program
def state_dict_saved():
    model, other = train(dmp("EXACT_SGD")), dmp("EXACT_SGD")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=False))
    return [whole(model), whole(other)]


@program
def averaged_dense():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    mean = [p.detach().clone() for p in dense_of(model)]
    for step in range(3):
        train(model, [dense], 1, first=step)
        for kept, p in zip(mean, dense_of(model)):
            kept.mul_(0.9).add_(p.detach(), alpha=0.1)
    return [m.reshape(-1).tolist() for m in mean]


@program
def one_optimizer_a_table():
    from torch.distributed.optim import _apply_optimizer_in_backward

    ebc = tables()
    _apply_optimizer_in_backward(torch.optim.SGD, ebc.embedding_bags["r"].parameters(), {"lr": 0.5})
    _apply_optimizer_in_backward(torch.optim.Adagrad, ebc.embedding_bags["c"].parameters(), {"lr": 0.1})
    tr.apply_optimizer_in_backward(tr.RowWiseAdagrad, ebc.embedding_bags["t"].parameters(), {"lr": 0.2})
    return whole(train(dmp("EXACT_SGD", 0.3, cuts="ct", ebc=ebc)))


@program
def dense_tables():
    out = []
    for make in (
        lambda ps: torch.optim.SGD(ps, lr=0.2), lambda ps: torch.optim.SGD(ps, lr=0.2, momentum=0.9),
        lambda ps: torch.optim.Adam(ps, lr=0.05), lambda ps: torch.optim.AdamW(ps, lr=0.05, weight_decay=0.1),
        lambda ps: torch.optim.Adagrad(ps, lr=0.2), lambda ps: torch.optim.RMSprop(ps, lr=0.01),
    ):  # fmt: skip
        model = dmp(kernel="dense")
        train(model, [make(list(model.parameters()))])
        out.append(whole(model))
    return out


@program
def dense_tables_grouped():
    model = dmp(kernel="dense")
    sparse = [p for name, p in model.named_parameters() if "embedding" in name]
    optimizer = torch.optim.SGD([{"params": sparse, "lr": 0.5}, {"params": dense_of(model)}], lr=0.1)
    return whole(train(model, [optimizer]))


@program
def names():
    model = dmp()
    found = [None] * dist.get_world_size()
    mine = [sorted(name for name, _ in model.named_parameters()), sorted(model.state_dict()),
            sorted(name for name, _ in model.named_buffers()),
            sorted(model.fused_optimizer.state_dict()["state"])]  # fmt: skip
    dist.all_gather_object(found, mine)
    return found


@program
def sequences():
    made = [tr.EmbeddingConfig(num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"])
            for name, n in SIZES.items()]  # fmt: skip
    out = []
    for kind in ("row", "table", "column"):
        ec = tr.EmbeddingCollection(tables=made, device=torch.device("meta"))
        sharder = tr.EmbeddingCollectionSharder(
            fused_params={"optimizer": tr.EmbOptimType.EXACT_SGD, "learning_rate": 0.5})
        cut = {"row": lambda: tr.row_wise(compute_kernel="fused"),
               "table": lambda: tr.table_wise(rank=1, compute_kernel="fused"),
               "column": lambda: tr.column_wise(ranks=[0, 1], compute_kernel="fused")}[kind]  # fmt: skip
        plan = tr.construct_module_sharding_plan(ec, {name: cut() for name in SIZES}, sharder, 2, 2, "cpu")
        model = tr.DistributedModelParallel(
            ec, tr.ShardingEnv.from_process_group(dist.group.WORLD), CPU, tr.ShardingPlan({"": plan}), [sharder])
        for key, value in model.state_dict().items():
            for shard in value.local_shards():
                (row, col), (n, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
                shard.tensor.copy_(start(key.split(".")[-2])[row : row + n, col : col + cols])
        for step in range(2):
            rows = model(features(step))
            rows = rows.wait() if hasattr(rows, "wait") else rows
            loss = sum((rows[key].values() * (1 + i)).pow(2).mean() for i, key in enumerate(KEYS))
            loss.backward()
        parts = [[rows[key].values().tolist(), rows[key].lengths().tolist()] for key in KEYS]
        out.append([whole(model), parts])
    return out


def equal_on_ranks(model):
    """Whether the dense part is the same on all ranks."""
    flat = torch.cat([p.detach().reshape(-1) for p in dense_of(model)])
    every = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(every, flat)
    return all(torch.equal(flat, other) for other in every)


@program
def freeze_and_unfreeze():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    weight = model.module.over.weight
    for trained in (True, False, True):
        weight.requires_grad_(trained)
        train(model, [dense], 2)
    return [equal_on_ranks(model), whole(model)]


@program
def frozen_from_the_start():
    class Frozen(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.over.requires_grad_(False)

    model = dmp("EXACT_SGD", 0.2, model=Frozen)
    train(model)
    model.module.over.requires_grad_(True)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    return [equal_on_ranks(model), whole(model)]


@program
def another_head():
    model = dmp("EXACT_SGD", 0.2)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    model.module.over = nn.Linear(24, 1)
    with torch.no_grad():
        for p in model.module.over.parameters():
            p.fill_(0.1)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    return [equal_on_ranks(model), whole(model)]


@program
def unused_layer():
    class Unused(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.unused = nn.Linear(2, 1, bias=False)
            nn.init.ones_(self.unused.weight)

    model = dmp("EXACT_SGD", 0.2, model=Unused)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


@program
def normalised():
    class Normalised(Model):
        def __init__(self, ebc):
            super().__init__(ebc)
            self.norm = nn.BatchNorm1d(24)

        def forward(self, batch):
            rows = self.e(batch)
            return self.over(self.norm(torch.cat([rows[key] for key in KEYS], 1)))

    model = dmp("EXACT_SGD", 0.2, model=Normalised)
    train(model, [torch.optim.SGD(dense_of(model), lr=0.1)])
    every = [torch.empty(24) for _ in range(2)]
    dist.all_gather(every, model.module.norm.running_mean)
    return [whole(model), [mean.tolist() for mean in every]]


@program
def scaled():
    model = dmp(kernel="dense")
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.2), torch.amp.GradScaler("cpu", init_scale=64.0)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(model(features(step)).pow(2).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
    return whole(model)


@program
def two_forwards():
    model = dmp("EXACT_SGD", 0.2)
    dense = torch.optim.SGD(dense_of(model), lr=0.1)
    for step in range(2):
        dense.zero_grad()
        (model(features(step)).pow(2).mean() + model(features(step + 5)).sum()).backward()
        dense.step()
    return whole(model)


@program
def checkpointed():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Model):
        def forward(self, batch):
            rows = self.e(batch)
            return checkpoint(self.over, torch.cat([rows[key] for key in KEYS], 1), use_reentrant=False)

    model = dmp("EXACT_SGD", 0.2, model=Checkpointed)
    return whole(train(model, [torch.optim.SGD(dense_of(model), lr=0.1)]))


@program
def variable_batches():
    model = dmp("EXACT_SGD", 0.2, cuts="ct")
    for step in range(2):
        batch = tr.KeyedJaggedTensor(
            KEYS,
            torch.tensor([3, 0, 1, 2]) + step,
            lengths=torch.tensor([1, 2, 1]),
            stride_per_key_per_rank=[[1]] * 3,
            inverse_indices=(KEYS, torch.zeros(3, 2, dtype=torch.int64)),
        )
        model(batch).pow(2).mean().backward()
    return whole(model)


@program
def ema_of_all():
    model = dmp(kernel="dense")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    mean = {name: p.detach().clone() for name, p in model.named_parameters()}
    for step in range(3):
        train(model, [optimizer], 1, first=step)
        for name, p in model.named_parameters():
            mean[name].lerp_(p.detach(), 0.1)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(mean[name])
    return whole(model)


@program
def vectors():
    found = []
    for by_vector in (True, False):
        model = dmp(kernel="dense")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        train(model, [optimizer], 1)
        if by_vector:
            vector = nn.utils.parameters_to_vector(model.parameters())
            nn.utils.vector_to_parameters(vector * 0.5, model.parameters())
        else:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(0.5)
        found.append(whole(train(model, [optimizer], 2)))
    return [found[0] == found[1], found[1]]


# Programs that tell something else with TorchRec. Those that tell first whether all is right tell so here.
OTHERWISE = {
    "freeze_and_unfreeze": "TorchRec takes no dense parameter that is frozen or trained later",
    "frozen_from_the_start": "TorchRec takes no dense part without a trained parameter",
    "another_head": "ranks of TorchRec train a layer that is replaced apart",
    "vectors": "rows of TorchRec's tables do not follow an assigned parameter",
    "weight_gradients": "TorchRec gives weights no gradient",
}

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    tr.choose(sys.argv[1])
    if sys.argv[1] == "torchrec":
        from torchrec.distributed.embedding import EmbeddingCollectionSharder
        from torchrec.optim import RowWiseAdagrad

        tr.EmbeddingCollectionSharder, tr.RowWiseAdagrad = EmbeddingCollectionSharder, RowWiseAdagrad
    dist.init_process_group("gloo")
    for name in sys.argv[2:] or PROGRAMS:
        try:
            out = PROGRAMS[name]()
        except Exception as error:
            out = f"{type(error).__name__}: {error}"
        if dist.get_rank() == 0:
            print("told: " + json.dumps({name: out}), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as in program.py
