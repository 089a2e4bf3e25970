"""On each rank: rows as parameters of sharded models, DDP, and torch.distributed.checkpoint.
rows.py BACKEND WHAT FOLDER: prints "all right" on rank 0."""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")


def gathered(tensor):
    out = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(out, tensor.contiguous())
    return out


def same_everywhere(tensor):
    return all(torch.equal(tensor, other) for other in gathered(tensor))


def library(who):
    """TorchRec's names, from one of the two."""
    if who == "tessera":
        import tessera.torch as tt

        return tt, tt.EmbOptimType, tt, tt
    import torchrec
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import embeddingbag, sharding_plan, types

    class Plan:
        construct_module_sharding_plan = staticmethod(sharding_plan.construct_module_sharding_plan)
        row_wise, table_wise, column_wise = (staticmethod(getattr(sharding_plan, n)) for n in
                                             ("row_wise", "table_wise", "column_wise"))  # fmt: skip
        ShardingEnv, ShardingPlan = types.ShardingEnv, types.ShardingPlan
        EmbeddingBagCollectionSharder = embeddingbag.EmbeddingBagCollectionSharder

    return torchrec, EmbOptimType, Plan, torchrec.distributed


def made(who="tessera", optimizer="EXACT_ADAGRAD", fused=True):
    """A sharded collection: a table by rows, one by columns, one on the last rank."""
    tr, kinds, plans, distributed = library(who)
    world = dist.get_world_size()
    tables = [tr.EmbeddingBagConfig(num_embeddings=n, embedding_dim=8, name=name, feature_names=[f"f{name}"])
              for name, n in (("r", 9), ("c", 5), ("t", 6))]  # fmt: skip
    ebc = tr.EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    params = {"optimizer": getattr(kinds, optimizer), "learning_rate": 1.0} if fused else None
    sharder = plans.EmbeddingBagCollectionSharder(fused_params=params)
    cuts = {"r": plans.row_wise(compute_kernel="fused"), "t": plans.table_wise(rank=world - 1, compute_kernel="fused"),
            "c": plans.column_wise(ranks=list(range(min(world, 2))), compute_kernel="fused")}  # fmt: skip
    plan = plans.construct_module_sharding_plan(ebc, cuts, sharder, world, world, "cpu")
    env = plans.ShardingEnv.from_process_group(dist.group.WORLD)
    plan = plans.ShardingPlan({"": plan})
    return distributed.DistributedModelParallel(ebc, env, torch.device("cpu"), plan, [sharder])


def whole_rows():
    sizes = (("r", 9), ("c", 5), ("t", 6))
    return {f"embedding_bags.{t}.weight": torch.arange(float(n * 8)).reshape(n, 8) / 10 for t, n in sizes}


def trained(model, who="tessera", steps=2):
    tr = library(who)[0]
    for step in range(steps):
        ids = torch.tensor([1, 8, 0, 4, 5, 2])
        features = tr.KeyedJaggedTensor(["fr", "fc", "ft"], ids, lengths=torch.tensor([2, 2, 2]))
        rows = model(features)
        rows = rows.wait() if hasattr(rows, "wait") else rows
        pooled = torch.cat([rows[k] for k in ("fr", "fc", "ft")], 1)
        (pooled * torch.arange(1.0, 25) * (step + 1)).sum().backward()
    return model


def local_parts(state):
    """Copies of what this rank has, by key."""
    out = {}
    for key, value in state.items():
        if isinstance(value, dict):
            out.update({f"{key}/{k}": v for k, v in local_parts(value).items()})
        elif hasattr(value, "local_shards"):
            out.update({f"{key}@{i}": s.tensor.clone() for i, s in enumerate(value.local_shards())})
        elif isinstance(value, torch.Tensor):
            out[key] = value.detach().clone()
    return out


def set_rows(model):
    for key, value in model.state_dict().items():
        for shard in value.local_shards():
            (row, col), (rows, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            with torch.no_grad():
                shard.tensor.copy_(whole_rows()[key][row : row + rows, col : col + cols])


def shards():
    """A write to the shards of a state dict is in the tables."""
    model = made()
    set_rows(model)
    for key, value in model.full_state_dict().items():
        assert torch.equal(value, whole_rows()[key]), key
    if hasattr(nn.utils, "get_total_norm"):  # an older PyTorch gathers no table of which a rank holds nothing
        for key, value in get_model_state_dict(model.module, options=StateDictOptions(full_state_dict=True)).items():
            assert torch.equal(value, whole_rows()[key]), key
    names = [name for name, _ in model.named_parameters()]
    assert sorted(name.split(".")[1] for name in names) == ["c", "r", "t"]
    assert type(model.module).__name__ == "ShardedEmbeddingBagCollection" and "row_wise" in repr(model.module)
    assert str(model._plan).startswith("module: ") and set(model._plan.plan[""]) == {"r", "c", "t"}
    model.module.embedding_bags["r"].weight.requires_grad_(False)
    before = {key: value.clone() for key, value in model.full_state_dict().items()}
    trained(model)
    after = model.full_state_dict()
    assert [k.split(".")[1] for k in before if torch.equal(before[k], after[k])] == ["r"]


def rank0():
    """What rank 0 asks for alone does not wait for the others."""
    model = trained(made())
    if dist.get_rank() == 0:
        assert len(model.state_dict()) == 3 and len(model.fused_optimizer.state_dict()["state"]) == 2
    dist.barrier()


def states(folder):
    """States of cut tables come back, also under other optimizers."""
    for optimizer in ("EXACT_ADAGRAD", "EXACT_ROWWISE_ADAGRAD", "ADAM"):
        model, other = made(optimizer=optimizer), made(optimizer=optimizer)
        trained(model)
        saved = {"model": model.state_dict(), "optim": model.fused_optimizer.state_dict()}
        dcp.save(saved, checkpoint_id=f"{folder}/{optimizer}")
        into = {"model": other.state_dict(), "optim": other.fused_optimizer.state_dict()}
        dcp.load(into, checkpoint_id=f"{folder}/{optimizer}")
        other.load_state_dict(into["model"])
        other.fused_optimizer.load_state_dict(into["optim"])
        assert other.module.core.steps == (2 if optimizer == "ADAM" else 0)
        first, second = local_parts(saved), local_parts(into)
        assert first.keys() == second.keys() and any("momentum1" in key for key in first)
        for key in first:
            assert torch.equal(first[key], second[key]), key
        for one in (model, other):
            trained(one, steps=1)
        a, b = model.full_state_dict(), other.full_state_dict()
        assert all(torch.equal(a[key], b[key]) for key in a)


def dense():
    """Tables without an optimizer have gradients on the ranks that hold them, averaged over ranks."""
    model, reference = made(fused=False), made(optimizer="EXACT_SGD")
    set_rows(model)
    set_rows(reference)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for step in range(2):
        optimizer.zero_grad()
        trained(model, steps=1)
        optimizer.step()
        trained(reference, steps=1)
    a, b = model.full_state_dict(), reference.full_state_dict()
    assert all(torch.allclose(a[key], b[key], rtol=1e-5) for key in a)
    assert not torch.equal(a["embedding_bags.r.weight"], whole_rows()["embedding_bags.r.weight"])


def clip():
    """clip_grad_norm_ takes the norm of all ranks' rows, and is the same on every rank."""
    for kind in (2.0, 1.0, float("inf")):
        model = made(fused=False)
        set_rows(model)
        trained(model, steps=1)
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        norms = torch.cat(gathered(torch.linalg.vector_norm(flat, kind).reshape(1)))
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1, kind)
        torch.testing.assert_close(norm, torch.linalg.vector_norm(norms, kind))
        assert same_everywhere(norm.reshape(1)) and norm > norms.min()
        if hasattr(nn.utils, "get_total_norm"):
            total = nn.utils.get_total_norm([p.grad for p in model.parameters()], kind)
            assert same_everywhere(total.reshape(1)) and abs(total - 0.1) < 1e-4
        flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
        norms = torch.cat(gathered(torch.linalg.vector_norm(flat, kind).reshape(1)))
        assert abs(torch.linalg.vector_norm(norms, kind) - 0.1) < 1e-4


def keyed(folder):
    """States of PyTorch's optimizers over shards come back, and what PyTorch would save wrongly is refused."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    import tessera.torch as tt

    def one():
        model = made(fused=False)
        set_rows(model)
        return model, tt.KeyedOptimizerWrapper(dict(model.named_parameters()), lambda p: torch.optim.Adam(p, lr=0.1))

    def steps(model, optimizer, n):
        for _ in range(n):
            optimizer.zero_grad()
            trained(model, steps=1)
            optimizer.step()
        return model.full_state_dict()

    (model, optimizer), (other, again) = one(), one()
    steps(model, optimizer, 2)
    dcp.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, checkpoint_id=folder)
    again.init_state()
    into = {"model": other.state_dict(), "optim": again.state_dict()}
    dcp.load(into, checkpoint_id=folder)
    other.load_state_dict(into["model"])
    again.load_state_dict(into["optim"])
    a, b = steps(model, optimizer, 1), steps(other, again, 1)
    assert all(torch.equal(a[key], b[key]) for key in a)
    for wrong, told in ((torch.optim.Adam(model.parameters()), "one rank's state of table r for all ranks"),
                        (made().fused_optimizer, "does not take a fused optimizer")):  # fmt: skip
        try:
            get_optimizer_state_dict(model.module, wrong)
            raise AssertionError("a rank's state was taken for all")
        except NotImplementedError as error:
            assert told in str(error), error


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.eb, self.l = nn.EmbeddingBag(20, 8, mode="sum"), nn.Linear(8, 1)

    def forward(self, ids):
        return self.l(self.eb(ids))


def ddp():
    """DDP reduces gradients of an unsharded collection, and refuses updates that it cannot reduce."""
    import tessera
    import tessera.torch as tt

    rank = dist.get_rank()
    ids, models = torch.tensor([[rank, rank + 5]]), []
    for how in ("plain", "adopted", "seeds differ"):
        model = Bag()
        if how != "plain":
            tt.adopt(model, None)
        wrapped = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            wrapped(ids).sum().backward()
            optimizer.step()
        assert same_everywhere(model.eb.weight.detach())
        models.append(model.eb.weight.detach().clone())
    assert torch.allclose(models[0], models[1]) and torch.equal(models[1], models[2])
    torch.manual_seed(rank)
    ebc = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(20, 8, "a", feature_names=["f"])])
    wrapped = DistributedDataParallel(nn.ModuleDict({"e": ebc}))
    assert same_everywhere(torch.from_numpy(ebc.core.weight("a")))
    refused = Bag()
    tt.adopt(refused, tessera.Optimizer("exact_sgd", learning_rate=0.1))
    try:
        DistributedDataParallel(refused)(ids)
        raise AssertionError("DDP took tables with an optimizer of their own")
    except RuntimeError as error:
        assert "DistributedDataParallel cannot reduce" in str(error), error
    sharded = Bag()
    tt.adopt(sharded, tessera.Optimizer("exact_sgd", learning_rate=0.1), {"eb": tt.row_wise()})
    wrapped = DistributedDataParallel(sharded)
    wrapped(ids).sum().backward()
    assert same_everywhere(sharded.l.weight.grad)


def refused():
    """What another wrapper would do to tables is refused, and a rank's own mistake does not keep the others waiting."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    import tessera.torch as tt

    tables = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(20, 8, "a", feature_names=["f"])])
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # an older PyTorch
        fully_shard = None
    if fully_shard is not None:
        try:
            fully_shard(nn.Sequential(tables))
            raise AssertionError("fully_shard took tables")
        except NotImplementedError as error:
            assert "cannot become a DTensor" in str(error), error
    model = made()
    weights = torch.ones(6) if dist.get_rank() else None
    features = tt.KeyedJaggedTensor(["fr", "fc", "ft"], torch.tensor([1, 8, 0, 4, 5, 2]), weights,
                                    lengths=torch.tensor([2, 2, 2]))  # fmt: skip
    try:
        model(features)
        raise AssertionError("weights of an unweighted collection were taken")
    except ValueError as error:
        assert "is not weighted" in str(error), error
    trained(model)
    plain = trained(made(fused=False), steps=1)
    try:
        ZeroRedundancyOptimizer(plain.parameters(), torch.optim.SGD, lr=0.1).step()
        raise AssertionError("one rank's rows were sent to all")
    except NotImplementedError as error:
        assert "one rank's rows of table r to all ranks" in str(error), error
    for name in ("Adafactor", "Muon", "LBFGS"):
        if not hasattr(torch.optim, name):  # an older PyTorch
            continue
        parameters = [p for p in plain.parameters() if p.dim() == 2 or name != "Muon"]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1)
        try:
            optimizer.step(lambda: torch.zeros(()))
            raise AssertionError(f"{name} took a rank's rows for a whole table")
        except NotImplementedError as error:
            assert f"{name} computes over whole parameters, but a rank has only its own rows" in str(error), error
    torch.optim.LBFGS([torch.nn.Parameter(torch.zeros(2))]).step(lambda: torch.zeros((), requires_grad=True))

    class Own(torch.optim.Optimizer):
        def step(self):
            pass

    class OwnAdam(torch.optim.Adam):
        pass

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for optimizer in (Own(plain.parameters(), {}), Own(plain.parameters(), {}), OwnAdam(plain.parameters())):
            optimizer.step()
    assert [str(w.message)[:15] for w in told] == ["if Own computes"], told
    try:
        DistributedDataParallel(model)
        raise AssertionError("DistributedDataParallel took a model that reduces its gradients")
    except RuntimeError as error:
        assert "DistributedDataParallel is not needed" in str(error), error


def starts():
    """Tables that exist keep rank 0's rows, so that copies of data-parallel tables are equal."""
    import tessera.torch as tt

    torch.manual_seed(dist.get_rank())
    tables = tt.EmbeddingBagCollection([tt.EmbeddingBagConfig(9, 8, name, feature_names=[name]) for name in "ab"])
    plan = tt.ShardingPlan({"": {"a": tt.data_parallel(), "b": tt.row_wise()}})
    before = gathered(torch.from_numpy(tables.core.weight("b")))[0]
    model = tt.DistributedModelParallel(tables, plan=plan)
    assert same_everywhere(model.module.embedding_bags["a"].weight.detach())
    assert torch.equal(model.full_state_dict()["embedding_bags.b.weight"], before)


def tutorial():
    """The sharding tutorial: plans of tables without an optimizer, one sharder.shard, wait() and print(plan)."""
    import tessera.torch as tt
    from tessera.torch.distributed.types import ModuleSharder

    for kind in ("table_wise", "row_wise", "column_wise", "data_parallel"):
        ebc = tt.EmbeddingBagCollection(device="meta", tables=[
            tt.EmbeddingBagConfig(64, 8, f"t{i}", feature_names=[f"f{i}"]) for i in range(4)])  # fmt: skip
        sharder = tt.EmbeddingBagCollectionSharder()
        assert ModuleSharder[nn.Module]
        planner = tt.EmbeddingShardingPlanner(
            topology=tt.Topology(world_size=dist.get_world_size(), compute_device="cpu"),
            constraints={f"t{i}": tt.ParameterConstraints(sharding_types=[kind]) for i in range(4)},
        )
        plan = planner.collective_plan(ebc, [sharder], dist.group.WORLD)
        assert all(sharding.sharding_type == kind for sharding in plan.plan[""].values())
        texts = [None] * dist.get_world_size()
        dist.all_gather_object(texts, str(plan))
        assert texts[0] == texts[1] and kind in texts[0]
        env = tt.ShardingEnv.from_process_group(dist.group.WORLD)
        alone = sharder.shard(ebc, plan.plan[""], env, torch.device("cpu"))
        model = tt.DistributedModelParallel(ebc, env=env, plan=plan, sharders=[sharder], device=torch.device("cpu"))
        features = tt.KeyedJaggedTensor([f"f{i}" for i in range(4)], torch.arange(8), lengths=torch.full((4,), 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        before = {key: value.clone() for key, value in model.full_state_dict().items()}
        for one in (alone, model):
            one(features).wait().values().sum().backward()
        optimizer.step()
        moved = model.full_state_dict()["embedding_bags.t1.weight"] - before["embedding_bags.t1.weight"]
        assert torch.allclose(moved[2:4], torch.tensor(-0.5)) and (moved[4:] == 0).all(), (kind, moved)


def save(who, folder):
    model = trained(made(who), who)
    dcp.save({"model": model.state_dict(), "optim": model.fused_optimizer.state_dict()}, checkpoint_id=folder)
    torch.save(whole(model, who), f"{folder}/whole.pt") if dist.get_rank() == 0 else whole(model, who)


def whole(model, who):
    """Rows after one more step."""
    trained(model, who, 1)
    out = {}
    for key, value in model.state_dict().items():
        rows = torch.zeros(value.size()) if hasattr(value, "local_shards") else value.detach().clone()
        for shard in value.local_shards() if hasattr(value, "local_shards") else ():
            (row, col), (n, cols) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
            rows[row : row + n, col : col + cols] = shard.tensor.detach()
        if hasattr(value, "local_shards"):
            dist.all_reduce(rows)
        out[key] = rows
    return out


def load(who, folder):
    model = made(who)
    into = {"model": model.state_dict(), "optim": model.fused_optimizer.state_dict()}
    dcp.load(into, checkpoint_id=folder)
    model.load_state_dict(into["model"])
    model.fused_optimizer.load_state_dict(into["optim"])
    for key, rows in torch.load(f"{folder}/whole.pt").items():
        torch.testing.assert_close(whole_after(model, who)[key], rows, rtol=1e-4, atol=1e-5)


_after = {}


def whole_after(model, who):
    if id(model) not in _after:
        _after[id(model)] = whole(model, who)
    return _after[id(model)]


if __name__ == "__main__":
    backend, what, where = sys.argv[1:]
    import tessera.torch  # noqa: F401  # the backend "tessera"

    dist.init_process_group(backend)
    if "-" in what:
        {"save": save, "load": load}[what.split("-")[0]](what.split("-")[1], where)
    else:
        globals()[what](*([where] if what in ("states", "keyed") else []))
    dist.barrier()
    if dist.get_rank() == 0:
        print("all right", flush=True)
    dist.destroy_process_group()
