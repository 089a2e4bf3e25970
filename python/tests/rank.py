"""Run by test_ranks.py on each rank: rank.py WHAT [FOLDER]."""

import os
import signal
import sys
import threading
import time

import numpy as np

import tessera

what, folder = sys.argv[1], sys.argv[2]
group = tessera.ProcessGroup(timeout_s=20)
random = np.random.default_rng(5)
STEPS, SAMPLES = 6, 8  # of all ranks together


def tables_as(**shardings):
    configs = [
        tessera.EmbeddingBagConfig(50, 8, "a", pooling="mean"),
        tessera.EmbeddingBagConfig(30, 4, "b", feature_names=["b", "c"]),
    ]
    adam = tessera.Optimizer("adam", learning_rate=0.05)
    return tessera.EmbeddingBagCollection(
        configs, optimizer=adam, group=group, planner=tessera.Planner(shardings=shardings), seed=2
    )


def train(tables):
    """The same samples, however many ranks share them."""
    for _ in range(STEPS):
        lengths = random.integers(0, 4, (3, SAMPLES))
        bounds = [0, *np.cumsum(lengths)]
        ids = random.integers(0, 30, bounds[-1])
        gradient = random.normal(size=(SAMPLES, 16)).astype(np.float32)
        mine = range(group.rank, SAMPLES, group.world_size)
        bags = [feature * SAMPLES + sample for feature in range(3) for sample in mine]
        own = np.concatenate([ids[bounds[bag] : bounds[bag + 1]] for bag in bags])
        step = tables.forward(own, lengths[:, mine].copy())
        step.backward(gradient[mine] / len(mine))


def digest(tables):
    return {name: tables.weight(name) for name in tables.tables}


if what == "train":
    cuts = {"rows": tessera.row_wise(), "columns": tessera.column_wise([0, 1 % group.world_size])}
    for name, cut in cuts.items():
        tables = tables_as(a=cut, b=tessera.data_parallel() if name == "columns" else tessera.table_wise(0))
        random = np.random.default_rng(5)
        train(tables)
        tables.save(f"{folder}/{name}-{group.world_size}")
        rows = digest(tables)
        if group.rank == 0:
            np.savez(f"{folder}/{name}-{group.world_size}.npz", **rows)
elif what == "load":
    tables = tables_as(a=tessera.table_wise(group.world_size - 1), b=tessera.row_wise())
    tables.load(f"{folder}/rows-1")
    rows = digest(tables)
    expected = np.load(f"{folder}/rows-1.npz")
    for name in rows:
        np.testing.assert_array_equal(rows[name], expected[name])
    tables.set_weight("a", np.full((50, 8), 7))
    assert (tables.weight("a", 10, 5) == 7).all()
    np.testing.assert_array_equal(tables.weight("b"), expected["b"])
    total = np.array([group.rank + 1.0])
    group.all_reduce(total, op="max")
    assert total == group.world_size
    group.broadcast(total, root=1)
    np.testing.assert_array_equal(group.all_gather(np.array([group.rank])), [[0], [1]])
elif what == "exchange":
    mine = np.arange(4.0).reshape(2, 2) + 10 * group.rank
    np.testing.assert_array_equal(group.reduce_scatter(mine), [[10, 12], [14, 16]][group.rank])
    np.testing.assert_array_equal(group.reduce_scatter(mine, "max"), [[10, 11], [12, 13]][group.rank])
    sent = np.array([[1, 2, 3], [4, 5, 6]][group.rank], np.uint8)
    got = group.all_to_all(sent, [[1, 2], [3, 0]][group.rank], [[1, 3], [2, 0]][group.rank])
    np.testing.assert_array_equal(got, [[1, 4, 5, 6], [2, 3]][group.rank])
    quantized = tables_as(a=tessera.row_wise(), b=tessera.table_wise(0)).quantize("fp16")
    rows = quantized.lookup([0, 49, 0, 29, 0, 29], [1, 1] * 3)
    assert np.ptp(group.all_gather(rows), axis=0).max() == 0 and np.abs(rows).min() > 0
elif what == "differ":  # a wrong id on one rank ends the step on both, and the next one goes on
    tables = tables_as(a=tessera.row_wise(), b=tessera.table_wise(0))
    try:
        tables.forward([1 + 50 * group.rank, 2, 3], [1, 1, 1])
        raise SystemExit("no error")
    except ValueError as error:
        assert "rank 1" in str(error) and "51" in str(error), error
    tables.forward([1, 2, 3], [1, 1, 1])
elif what == "refused":  # so does a batch that one rank cannot even read, there or in the library
    tables = tables_as(a=tessera.row_wise(), b=tessera.table_wise(0))
    for part in ("lengths", "ids", "out"):
        try:
            if group.rank == 0:
                tables.lookup([1, 2, 3], [1, 1, 1])
            elif part == "lengths":
                tables.forward([1, 2, 3], None)
            elif part == "ids":
                tables.forward(np.ones(3, np.float32), [1, 1, 1])
            else:
                tables.lookup([1, 2, 3], [1, 1, 1], out=[0])
            raise SystemExit("no error")
        except ValueError as error:
            assert group.rank == 1 or "rank 1: " in str(error), error
    tables.forward([1, 2, 3], [1, 1, 1])
elif what == "plans":
    try:
        tables_as(a=tessera.row_wise(), b=tessera.table_wise(group.rank))
        raise SystemExit("no error")
    except RuntimeError as error:
        assert "another plan than rank 0" in str(error), error
elif what == "killed":
    tables = tables_as(a=tessera.row_wise(), b=tessera.table_wise(0))
    if group.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            tables.forward([1, 2, 3], [1, 1, 1])
    except ConnectionError as error:
        assert error.rank == 1, error.rank
        print("told:", error, flush=True)
elif what == "interrupted":  # of Ctrl-C, rank 0 alone hears, while it waits for rank 1
    try:
        if group.rank == 0:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            group.barrier()
        else:
            time.sleep(1)
            while True:
                group.barrier()
        raise SystemExit("no error")
    except KeyboardInterrupt:
        print("interrupted, rank", group.rank, flush=True)
    except tessera.TesseraError as error:
        print("told:", error, flush=True)
    sys.exit(0)
else:
    raise SystemExit(f"unknown: {what}")
if what != "killed":
    group.barrier()
print("done, rank", group.rank, flush=True)
