"""On each rank: torch.distributed over Tessera's transports.

backend.py collectives|messages|ddp|adopted|checkpoint|dtensors|weights|killed|killed-before-its-message|wrong [FOLDER]
"""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import tessera
import tessera.torch as tt

what = sys.argv[1]
dist.init_process_group("tessera", timeout=timedelta(seconds=60))
rank, world = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == "tessera"


def random(shape, dtype, seed):
    generator = torch.Generator().manual_seed(10 * seed + rank)
    return torch.randint(0, 7, shape, generator=generator).to(dtype)


def outcomes(group, dtype, seed):
    """Checks every collective on one group."""

    def made(*shape):
        return random(shape, dtype, seed)

    out = []
    for op in ("SUM", "MAX", "MIN", "PRODUCT"):
        out.append(made(5, 3))
        dist.all_reduce(out[-1], op=getattr(dist.ReduceOp, op), group=group)
    out.append(made(4, 6).t())  # not contiguous
    dist.all_reduce(out[-1], group=group)
    out.append(made(3))
    dist.broadcast(out[-1], src=world - 1, group=group)
    out.append(made())
    dist.broadcast(out[-1], src=0, group=group)
    pieces = [torch.zeros(2, 2, dtype=dtype) for _ in range(world)]
    dist.all_gather(pieces, made(2, 2), group=group)
    out += pieces
    out.append(torch.zeros(2 * world, dtype=dtype))
    dist.all_gather_into_tensor(out[-1], made(2), group=group)
    out.append(made(3))
    dist.reduce(out[-1], dst=0, group=group)
    if rank != 0:
        out.pop()  # not said
    gathered = [torch.zeros(3, dtype=dtype) for _ in range(world)] if rank == 0 else None
    dist.gather(made(3), gathered, dst=0, group=group)
    out += gathered or []
    out.append(torch.zeros(2, 2, dtype=dtype))
    dist.scatter(out[-1], [made(2, 2) + i for i in range(world)] if rank == 0 else None, src=0, group=group)
    out.append(torch.zeros(world, dtype=dtype))
    dist.all_to_all_single(out[-1], made(world), group=group)
    mine, theirs = [1, 3] if rank == 0 else [2, 0], [1, 2] if rank == 0 else [3, 0]
    out.append(torch.zeros(sum(theirs), 2, dtype=dtype))
    dist.all_to_all_single(out[-1], made(sum(mine), 2), theirs, mine, group=group)
    return out


if what == "collectives":
    gloo = dist.new_group(backend="gloo")
    for seed, dtype in enumerate([torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.float16]):
        for mine, theirs in zip(outcomes(None, dtype, seed), outcomes(gloo, dtype, seed)):
            assert mine.dtype == theirs.dtype and torch.equal(mine, theirs), (dtype, mine, theirs)
    for dtype in (torch.bfloat16, torch.bool):
        flags = random((4,), dtype, 9)
        everybodys = [torch.zeros(4, dtype=dtype) for _ in range(world)]
        dist.all_gather(everybodys, flags)
        dist.all_reduce(flags)
        assert torch.equal(flags, sum(p.float() for p in everybodys).to(dtype)), flags
    mean = torch.tensor([1.0, 4.0]) * (rank + 1)
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    assert mean.tolist() == [1.5, 6.0]
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.arange(4.0) + rank)
    assert part.tolist() == [4.0 * rank + 1, 4.0 * rank + 3]
    dist.reduce_scatter(part, [torch.full((2,), 1.0 + rank), torch.full((2,), 5.0)])
    assert part.tolist() == ([3.0, 3.0] if rank == 0 else [10.0, 10.0])
    bits = torch.tensor([1, 2, 4]) << rank
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    assert bits.tolist() == [3, 6, 12]
    objects = [None] * world
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": 0}, {"rank": 1}]
    told = [["a", 1] if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    assert told == [["a", 1]]
    work = dist.all_reduce(mean, async_op=True)
    work.wait()
    assert mean.tolist() == [3.0, 12.0]
    swapped = torch.zeros(2)
    dist.all_to_all_single(swapped, torch.tensor(rank + 1.0).expand(2))  # strides of 0, as gradients of sums have
    assert swapped.tolist() == [1, 2]
    alone = [dist.new_group([r]) for r in range(world)][rank]
    dist.all_reduce(mean, group=alone)
    assert mean.tolist() == [3.0, 12.0]
elif what == "messages":  # of any type and size, in both directions at once, out of order by tag
    other = 1 - rank
    for shape, dtype in (((), torch.bool), ((3,), torch.bfloat16), ((0, 4), torch.float32), ((1 << 20,), torch.int64)):
        mine, theirs = (torch.arange(int(torch.Size(shape).numel())).reshape(shape) + r for r in (rank, other))
        mine, into = mine.to(dtype), torch.zeros(shape, dtype=dtype)
        works = [dist.isend(mine, other), dist.irecv(into, other)]  # 8 MB each way: neither waits for the other
        for work in works:
            work.wait()
        assert works[1].is_completed() and torch.equal(into, theirs.to(dtype)), (dtype, into)
    if rank == 0:
        for tag in (3, 1, 2):
            dist.send(torch.full((2, 2), float(tag)), 1, tag=tag)
    else:
        into = torch.zeros(2, 2).t()
        for tag in (1, 2, 3):
            dist.recv(into, src=0, tag=tag)
            assert into.tolist() == [[tag, tag], [tag, tag]]
    apart = torch.zeros(4, 2).t()  # not contiguous
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.ones(2, 4) * rank, other), dist.P2POp(dist.irecv, apart, other)]
    )
    for work in works:
        work.wait()
    assert (apart == other).all()
    group = dist.new_group([0, 1])
    told = [{"rank": rank}]
    if rank == 0:
        dist.send_object_list(told, dst=1, group=group)
    else:
        dist.recv_object_list(told, src=0, group=group)
        assert told == [{"rank": 0}]
    scattered = [None]
    dist.scatter_object_list(scattered, [{"for": r} for r in range(world)] if rank == 0 else None, src=0)
    assert scattered == [{"for": rank}]
    gathered = [None] * world if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0)
    assert rank or gathered == [0, 1]
    try:  # the sizes must be equal; what follows goes on
        dist.send(torch.zeros(3), 1) if rank == 0 else dist.recv(torch.zeros(4), 0)
        assert rank == 0
    except ValueError as error:
        assert "rank 0 has sent 12 bytes" in str(error) and "has 16" in str(error), error
    value = torch.tensor([7.0])
    dist.send(value, 1) if rank == 0 else dist.recv(value.zero_(), 0)
    assert value.item() == 7
elif what == "ddp":  # as over gloo, to the last bit; what is not contiguous, and buffers, too
    gloo = dist.new_group(backend="gloo")
    for ids in ([[1, 1, 4], [4, 8]], [[], [2]], [[], []]):  # sparse gradients: ranks have other rows, or none
        grads = []
        for group in (None, gloo):
            rows = torch.nn.Embedding(9, 3, sparse=True)
            torch.nn.init.ones_(rows.weight)
            rows = torch.nn.parallel.DistributedDataParallel(rows, process_group=group)
            (rows(torch.tensor(ids[rank], dtype=torch.int64)) * (rank + 1)).sum().backward()
            grads.append(rows.module.weight.grad)
            assert grads[-1].is_sparse
        assert torch.equal(grads[0].to_dense(), grads[1].to_dense()), (ids, grads)
    try:
        dist.monitored_barrier()
    except ValueError as error:  # of older releases, whatever the backend can
        assert "only implemented for GLOO" in str(error), error
    states = []
    for group in (None, gloo):
        torch.manual_seed(rank)  # DDP begins with rank 0's
        model = torch.nn.Sequential(torch.nn.Linear(6, 40), torch.nn.BatchNorm1d(40), torch.nn.Linear(40, 1))
        model = torch.nn.parallel.DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.001)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        generator = torch.Generator().manual_seed(5 + rank)
        for _ in range(4):
            optimizer.zero_grad()
            (model(torch.randn(8, 6, generator=generator)) ** 2).mean().backward()
            optimizer.step()
        states.append(model.state_dict())
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key]), key
elif what == "adopted":  # a model of PyTorch, its tables cut over the ranks, trains as it does alone

    def made():
        torch.manual_seed(4)
        parts = {"bag": torch.nn.EmbeddingBag(9, 4, mode="mean"), "row": torch.nn.Embedding(6, 8)}
        return torch.nn.ModuleDict({"of": torch.nn.ModuleDict(parts)})

    def loss(model, samples):
        bags, rows = torch.tensor([[1, 8], [3, 3], [0, 1], [8, 2]]), torch.tensor([[5], [0], [5], [1]])
        pooled, row = model["of"]["bag"](bags[samples]), model["of"]["row"](rows[samples])
        return (pooled**2).sum(1).mean() + (row**3).sum((1, 2)).mean()

    sgd = tessera.Optimizer("exact_sgd", learning_rate=0.5)
    for plan in ({"of_bag": tt.row_wise(), "of_row": tt.table_wise(1)}, None):
        reference, model = made(), made()
        assert tt.adopt(model, sgd, plan=plan) == ["of.bag", "of.row"]
        trained = model if plan else tt.DistributedModelParallel(model)
        held = [(s.table, s.rows) for part in ("bag", "row") for s in model["of"][part].core.shards()]
        assert plan is None or held == ([("of_bag", 5)] if rank == 0 else [("of_bag", 4), ("of_row", 6)]), held
        optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
        for _ in range(2):
            loss(trained if plan else trained.module, [rank, rank + 2]).backward()
            optimizer.zero_grad()
            loss(reference, [0, 1, 2, 3]).backward()
            optimizer.step()
        assert tt.release(model) == ["of.bag", "of.row"] and type(model["of"]["row"]) is torch.nn.Embedding
        for key, value in reference.state_dict().items():
            torch.testing.assert_close(model.state_dict()[key], value)
elif what == "checkpoint":  # of torch.distributed, with ShardedTensors and without gloo
    import torch.distributed.checkpoint as dcp
    from torch.distributed._shard.sharded_tensor import ShardedTensor

    def model(seed):
        sizes = {"a": (21, 4), "b": (10, 8), "c": (5, 4)}
        tables = [tt.EmbeddingBagConfig(*size, name) for name, size in sizes.items()]
        whole = torch.nn.ModuleDict({"sparse": tt.EmbeddingBagCollection(tables, device="meta")})
        whole["over"] = torch.nn.Linear(16, 1)
        plan = tt.construct_module_sharding_plan(
            whole["sparse"], {"a": tt.row_wise(), "b": tt.column_wise([0, 1]), "c": tt.data_parallel()}
        )
        sharders = [tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD, "learning_rate": 0.1})]
        return tt.DistributedModelParallel(whole, plan=tt.ShardingPlan({"sparse": plan}), sharders=sharders, seed=seed)

    saved, loaded = model(1), model(2)
    state = saved.state_dict()
    key = "sparse.embedding_bags.{}.weight".format
    assert isinstance(state[key("a")], ShardedTensor) and isinstance(state[key("b")], ShardedTensor)
    assert state[key("a")].local_shards()[0].tensor.shape == ((11, 4) if rank == 0 else (10, 4))
    assert type(state[key("c")]) is torch.Tensor
    dcp.save(state, checkpoint_id=sys.argv[2])
    before, other = saved.full_state_dict(), loaded.full_state_dict()
    into = loaded.state_dict()
    dcp.load(into, checkpoint_id=sys.argv[2])
    loaded.load_state_dict(into)
    for name, value in loaded.full_state_dict().items():
        assert torch.equal(value, before[name]), name
    assert any(not torch.equal(other[name], before[name]) for name in before)
    again = model(3)
    again.load_state_dict(before)  # whole tables are taken, too
    for name, value in again.full_state_dict().items():
        assert torch.equal(value, before[name]), name
elif what == "dtensors":  # as newer releases of TorchRec, and torch.distributed.tensor, have tables
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    except ImportError:  # before PyTorch 2.5
        from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor
    import torch.distributed.checkpoint as dcp

    mesh = init_device_mesh("cpu", (world,))
    values = torch.arange(24.0).reshape(6, 4)
    cut = distribute_tensor(values, mesh, [Shard(0)])
    assert torch.equal(cut.to_local(), values[3 * rank : 3 * rank + 3])
    assert torch.equal(cut.redistribute(mesh, [Replicate()]).to_local(), values)
    assert torch.equal(cut.redistribute(mesh, [Shard(1)]).to_local(), values[:, 2 * rank : 2 * rank + 2])
    assert (cut * 2).sum().full_tensor() == 2 * values.sum()
    flat = init_device_mesh("cpu", (1, world), mesh_dim_names=("hosts", "ranks"))
    assert torch.equal(distribute_tensor(values, flat, [Shard(1), Shard(0)]).full_tensor(), values)
    ones = torch.ones(2)
    dist.all_reduce(ones, group=flat.get_group("ranks"))
    dist.all_reduce(ones, group=flat.get_group("hosts"))  # a group of one
    assert ones.tolist() == [2, 2]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1), device_mesh=flat["ranks"])
    model(values + rank).sum().backward()
    assert model.module.weight.grad[0].tolist() == (values.sum(0) + 3).tolist()
    dcp.save({"cut": cut}, checkpoint_id=sys.argv[2])
    into = {"cut": distribute_tensor(torch.zeros(6, 4), mesh, [Shard(1)])}
    dcp.load(into, checkpoint_id=sys.argv[2])
    assert torch.equal(into["cut"].full_tensor(), values)
    tables = [tt.EmbeddingBagConfig(7, 4, "a"), tt.EmbeddingBagConfig(6, 8, "b")]
    whole = torch.nn.ModuleDict({"e": tt.EmbeddingBagCollection(tables, device="meta")})
    plan = tt.construct_module_sharding_plan(whole["e"], {"a": tt.row_wise(), "b": tt.column_wise([0, 1])})
    sharders = [tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD, "learning_rate": 0.5})]
    model = tt.DistributedModelParallel(whole, plan=tt.ShardingPlan({"e": plan}), sharders=sharders)
    rows = {"e.embedding_bags.a.weight": torch.randn(7, 4), "e.embedding_bags.b.weight": torch.randn(6, 8)}
    state = {}
    for dim, (key, value) in enumerate(rows.items()):
        dist.broadcast(value, src=0)
        state[key] = distribute_tensor(value, mesh, [Shard(dim)])
        assert isinstance(state[key], DTensor)
    model.load_state_dict(state)
    for key, value in model.full_state_dict().items():
        assert torch.equal(value, rows[key]), key
elif what == "weights":  # of ids have gradients where tables are cut, too; ranks have different numbers of samples
    a = tt.EmbeddingBagConfig(21, 4, "a", feature_names=["x", "y"])
    tables = [a, tt.EmbeddingBagConfig(10, 8, "b", feature_names=["y"])]
    whole = torch.nn.ModuleDict({"e": tt.EmbeddingBagCollection(tables, is_weighted=True, device="meta")})
    plan = tt.construct_module_sharding_plan(whole["e"], {"a": tt.row_wise(), "b": tt.column_wise([0, 1])})
    sharders = [tt.EmbeddingBagCollectionSharder({"optimizer": tt.EmbOptimType.EXACT_SGD, "learning_rate": 0.5})]
    model = tt.DistributedModelParallel(whole, plan=tt.ShardingPlan({"e": plan}), sharders=sharders)
    rows = {key[-8]: value for key, value in model.full_state_dict().items()}  # by table
    lengths = torch.tensor([2, 0, 1, 1, 3, 0]) if rank == 0 else torch.tensor([1, 2])
    ids = torch.arange(int(lengths.sum())) + rank
    mine, theirs = (torch.linspace(-1, 2, len(ids)).requires_grad_() for _ in range(2))
    features = tt.KeyedJaggedTensor(["x", "y"], ids, mine, lengths=lengths)
    out = model.module["e"](features).values()
    half, split = len(lengths) // 2, int(lengths[: len(lengths) // 2].sum())
    parts = []
    for table, part in (("a", slice(None, half)), ("a", slice(half, None)), ("b", slice(half, None))):
        of_ids = slice(None, split) if part.start is None else slice(split, None)
        bags = torch.repeat_interleave(torch.arange(half), lengths[part])  # embedding_bag of PyTorch 2.4 fails here
        weighted = rows[table][ids[of_ids]] * theirs[of_ids][:, None]
        parts.append(torch.zeros(half, weighted.shape[1]).index_add(0, bags, weighted))
    expected = torch.cat(parts, 1)
    torch.testing.assert_close(out, expected)
    (out**3).sum().backward()
    (expected**3).sum().backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    assert mine.grad.abs().max() > 0
elif what == "killed-before-its-message":
    values = torch.zeros(4)
    dist.recv(values, src=1) if rank == 0 else dist.send(values, 0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        dist.recv(values, src=1)
        raise SystemExit("no error")
    except ConnectionError as error:
        assert error.rank == 1, error
        print("told:", error, flush=True)
    os._exit(0)
elif what == "killed":
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        model(torch.ones(1, 2)).sum().backward()
        raise SystemExit("no error")
    except ConnectionError as error:
        print("told:", error, flush=True)
    os._exit(0)
elif what == "wrong":
    for sentence, error, use in [
        ("on meta", ValueError, lambda: dist.all_reduce(torch.zeros(2, device="meta"))),
        ("name the rank by src", NotImplementedError, lambda: dist.recv(torch.zeros(2))),
        ("sparse_coo", ValueError, lambda: dist.broadcast(torch.zeros(2, 2).to_sparse(), 0)),
        ("sparse_csr", ValueError, lambda: dist.all_reduce(torch.zeros(2, 2).to_sparse_csr())),
        ("no sum of torch.float8_e4m3fn", NotImplementedError,
         lambda: dist.all_reduce(torch.zeros(2).to(torch.float8_e4m3fn))),
        ("no band of torch.float32", NotImplementedError,
         lambda: dist.all_reduce(torch.zeros(2), op=dist.ReduceOp.BAND)),
        ("3 values of torch.float32, but must have 4", ValueError,
         lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(2))),
        ("of torch.int64, but must have 4 of torch.float32", ValueError,
         lambda: dist.all_gather_into_tensor(torch.zeros(4, dtype=torch.int64), torch.zeros(2))),
        ("5 rows cannot be split evenly among 2 ranks", ValueError,
         lambda: dist.all_to_all_single(torch.zeros(5), torch.zeros(4))),
        ("for itself, and room for 3", ValueError, lambda: dist.all_to_all_single(torch.zeros(6), torch.zeros(4))),
    ]:
        try:
            use()
            raise SystemExit(f"no error: {sentence}")
        except error as raised:
            assert sentence in str(raised), raised
    still = torch.ones(1)
    dist.all_reduce(still)  # none of them has ended the group
    assert still.tolist() == [2.0]
    held = dist.distributed_c10d._get_default_group()
    held.shutdown()
    try:
        dist.all_reduce(torch.zeros(2))
        raise SystemExit("no error")
    except tessera.InvalidArgument as error:
        assert "this process group was closed" in str(error), error
    print("all right", flush=True)
    os._exit(0)
else:
    raise SystemExit(f"unknown: {what}")
dist.barrier()
dist.destroy_process_group()
print("all right", flush=True)
