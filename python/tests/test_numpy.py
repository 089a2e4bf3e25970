"""The NumPy API on one rank: numbers, rows, plans, checkpoints, and wrong uses."""

import ast
import copy
import gc
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tessera

TABLES = [
    tessera.EmbeddingBagConfig(6, 4, "a"),
    tessera.EmbeddingBagConfig(4, 2, "b", feature_names=["y", "z"], pooling=tessera.PoolingType.MEAN),
]


def bags(tables=TABLES, **options):
    options.setdefault("optimizer", tessera.Optimizer("exact_sgd", learning_rate=1.0))
    return tessera.EmbeddingBagCollection(tables, **options)


def filled(tables):
    tables.set_weight("a", np.arange(24).reshape(6, 4))
    tables.set_weight("b", np.arange(8).reshape(4, 2) + 100)
    return tables


# a: [1, 2], []; y: [3], [0, 1]; z: [], [2]
IDS = np.array([1, 2, 3, 0, 1, 2])
LENGTHS = np.array([2, 0, 1, 2, 0, 1], np.int32)
POOLED = np.array([[4 + 8, 5 + 9, 6 + 10, 7 + 11, 106, 107, 0, 0], [0, 0, 0, 0, 101, 102, 104, 105]], np.float32)


def test_any_id_reaches_the_kernels():
    table = tessera.EmbeddingBagConfig(8, 4, "item", any_id=True)
    with pytest.raises(tessera.InvalidArgument, match="table item has no sharding"):
        tessera.plan([table], tessera.Planner(constraints={"item": tessera.ParameterConstraints(
            compute_kernels=["fused"])}))  # fmt: skip


def test_what_a_collection_is():
    tables = bags()
    assert tables.kind == "bags" and tables.width == 8
    assert tables.features == ["a", "y", "z"]
    assert tables.outputs == {"a": 4, "y": 2, "z": 2}
    assert tables.tables == {"a": (6, 4), "b": (4, 2)}
    assert tables.keys == ["embedding_bags.a.weight", "embedding_bags.b.weight"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_pools_and_updates(dtype):
    tables = filled(bags())
    step = tables.forward(IDS.astype(dtype), LENGTHS.astype(dtype))
    np.testing.assert_array_equal(step.output, POOLED)
    step.backward(np.ones((2, 8), np.float32))
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    rows[1:3] -= 1
    np.testing.assert_array_equal(tables.weight("a"), rows)
    np.testing.assert_allclose(tables.weight("b", 0, 2), [[99.5, 100.5], [101.5, 102.5]])  # half of a bag of two each
    assert tables.steps == 1


def test_objects_of_the_library_are_not_copied(capfd):
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"neither copied nor pickled: save tables by save\(DIRECTORY\)"):
            copied(bags())
    gc.collect()
    assert "ignored" not in capfd.readouterr().err


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_batch_may_be_overwritten_between_forward_and_backward(is_weighted):
    def trained(overwrites):
        table = tessera.EmbeddingBagConfig(6, 4, "a")
        tables = bags(tables=[table], is_weighted=is_weighted)
        tables.set_weight("a", np.zeros((6, 4)))
        arrays = {"values": np.array([1, 2, 3]), "lengths": np.array([2, 1])}
        if is_weighted:
            arrays["weights"] = np.array([1, 2, 4], np.float32)
        step = tables.forward(**arrays)
        for array in arrays.values() if overwrites else ():
            array[:] = array[::-1].copy()
        step.backward(np.arange(8, dtype=np.float32).reshape(2, 4))
        return tables.weight("a")

    np.testing.assert_array_equal(trained(True), trained(False))


def test_offsets_keys_and_lookup():
    tables = filled(bags())
    np.testing.assert_array_equal(tables.lookup(IDS, offsets=[0, 2, 2, 3, 5, 5, 6]), POOLED)
    mixed = tables.lookup([3, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1], keys=["y", "a", "z"])
    np.testing.assert_array_equal(mixed, POOLED)
    out = np.empty((2, 8), np.float32)
    assert tables.lookup(IDS, LENGTHS, out=out) is out
    np.testing.assert_array_equal(out, POOLED)


def test_strided_lists_and_read_only_arrays_are_taken():
    tables = filled(bags())
    twice = np.repeat(IDS, 2)[::2]
    lengths = LENGTHS.copy()
    lengths.flags.writeable = False
    np.testing.assert_array_equal(tables.forward(twice, lengths).output, POOLED)
    np.testing.assert_array_equal(tables.forward(list(IDS), list(LENGTHS.astype(int))).output, POOLED)
    np.testing.assert_array_equal(tables.lookup([], np.zeros(6, int)), np.zeros((2, 8)))


def test_a_variable_batch_for_each_feature():
    tables = filled(bags())
    inverse = np.array([[0, 0, 1], [0, 1, 1], [0, 0, 0]])
    pooled = tables.lookup([1, 2, 3, 2], [1, 1, 1, 0, 1], strides=[2, 2, 1], inverse=inverse)
    np.testing.assert_array_equal(pooled[:, :4], np.array([[4, 5, 6, 7], [4, 5, 6, 7], [8, 9, 10, 11]]))
    np.testing.assert_array_equal(pooled[:, 4], [106, 0, 0])
    np.testing.assert_array_equal(pooled[:, 6], [104, 104, 104])


def test_gradients_of_weights():
    tables = tessera.EmbeddingBagCollection(TABLES[:1], is_weighted=True)
    tables.set_weight("a", np.arange(24).reshape(6, 4))
    weights, grad = np.array([0.5, 2, 1], np.float32), np.array([[1, 0, 0, 0], [0, 0, 0, 2]], np.float32)
    np.testing.assert_array_equal(tables.weight_gradients(grad, [1, 2, 3], [2, 1], weights=weights), [4, 8, 2 * 15])
    with pytest.raises(tessera.InvalidArgument, match=r"float32 \[2, 4\]"):
        tables.weight_gradients(grad[:1], [1, 2, 3], [2, 1], weights=weights)
    with pytest.raises(tessera.FailedPrecondition, match="is_weighted"):
        filled(bags()).weight_gradients(POOLED, IDS, LENGTHS)


def test_weighted_bags():
    tables = tessera.EmbeddingBagCollection([tessera.EmbeddingBagConfig(6, 4, "a")], is_weighted=True)
    tables.set_weight("a", np.arange(24).reshape(6, 4))
    pooled = tables.lookup([1, 2], [2], weights=np.array([0.5, 2], np.float32))
    np.testing.assert_array_equal(pooled, [[18, 20.5, 23, 25.5]])
    weighted = tables.quantize("fp16")
    np.testing.assert_array_equal(weighted.lookup([1, 2], [2], weights=np.array([0.5, 2], np.float32)), pooled)
    with pytest.raises(ValueError, match="weights"):
        weighted.lookup([1, 2], [2])


def test_sequences():
    tables = tessera.EmbeddingCollection(
        [tessera.EmbeddingConfig(6, 2, "a")], optimizer=tessera.Optimizer("exact_sgd", learning_rate=1.0)
    )
    tables.set_weight("a", np.arange(12).reshape(6, 2))
    step = tables.forward([5, 1, 5], [2, 1])
    np.testing.assert_array_equal(step.outputs["a"], [[10, 11], [2, 3], [10, 11]])
    assert step.output is None
    step.backward({"a": np.ones((3, 2), np.float32)})
    np.testing.assert_array_equal(tables.weight("a", 5), [[8, 9]])
    tables.forward([5], [1]).backward({})
    np.testing.assert_array_equal(tables.weight("a", 5), [[8, 9]])


def test_outputs_outlive_their_step():
    tables = filled(bags())
    output = tables.forward(IDS, LENGTHS).output
    others = [tables.forward([0] * 3, [1, 0] * 3) for _ in range(5)]
    del others
    gc.collect()
    np.testing.assert_array_equal(output, POOLED)
    group = tables.group
    del tables
    gc.collect()
    np.testing.assert_array_equal(output, POOLED)
    group.close()


def test_shards_with_their_states():
    tables = bags(optimizer=tessera.Optimizer("adam", learning_rate=0.1))
    (shard,) = [s for s in tables.shards() if s.table == "a"]
    assert (shard.rows, shard.cols, shard.states) == (6, 4, ("momentum1", "momentum2"))
    tables.forward(IDS, LENGTHS).backward(np.ones((2, 8), np.float32))
    weights, states = tables.read_shard(shard)
    np.testing.assert_array_equal(weights, tables.weight("a"))
    assert (states["momentum2"][[0, 3, 4, 5]] == 0).all() and (states["momentum2"][1:3] > 0).all()
    states["momentum1"][3] = 7
    tables.write_shard(shard, weights * 2, states)
    np.testing.assert_array_equal(tables.weight("a"), weights * 2)
    assert (tables.read_shard(shard, 3, 1)[1]["momentum1"] == 7).all()
    np.testing.assert_array_equal(tables.shard_ids(shard, 2, 3), [2, 3, 4])
    blocks = list(tables.shard_rows(shard, 4))
    assert [ids.tolist() for ids, _, _ in blocks] == [[0, 1, 2, 3], [4, 5]]
    np.testing.assert_array_equal(np.concatenate([rows for _, rows, _ in blocks]), tables.weight("a"))
    assert (blocks[0][2]["momentum1"][3] == 7).all()


def test_a_view_of_a_shard_is_its_memory():
    tables = bags(optimizer=tessera.Optimizer("adam", learning_rate=0.1))
    (shard,) = [s for s in tables.shards() if s.table == "a"]
    rows, states = tables.view_shard(shard)
    assert rows.shape == (6, 4) and rows.dtype == np.float32 and set(states) == {"momentum1", "momentum2"}
    rows[...] = np.arange(24).reshape(6, 4)
    np.testing.assert_array_equal(tables.weight("a"), np.arange(24).reshape(6, 4))
    tables.forward(IDS, LENGTHS).backward(np.ones((2, 8), np.float32))
    read, copies = tables.read_shard(shard)
    np.testing.assert_array_equal(rows, read)
    assert rows[1, 0] != 4 and rows[3, 0] == 12
    for name, state in states.items():
        assert state.strides == (32, 4)  # both moments of a row lie side by side
        np.testing.assert_array_equal(state, copies[name])
    states["momentum2"][5] = 9
    assert (tables.read_shard(shard)[1]["momentum2"][5] == 9).all()
    with pytest.raises(tessera.InvalidArgument, match="one of shards"):
        tables.view_shard("a")
    del tables, shard
    gc.collect()
    assert rows[3, 0] == 12 and (states["momentum2"][5] == 9).all()


@pytest.mark.parametrize("kind, dtype", [("FP16", np.float16), ("BF16", np.uint16)])
def test_a_view_has_the_stored_type(kind, dtype):
    table = tessera.EmbeddingBagConfig(6, 4, "a", data_type=kind)
    for kernel in ("cpu", "reference"):
        tables = tessera.EmbeddingBagCollection([table], kernel=kernel)
        rows, states = tables.view_shard(tables.shards()[0])
        assert rows.dtype == dtype and rows.shape == (6, 4) and states == {}
        rows[2] = 1.5 if dtype is np.float16 else 0x3FC0  # bfloat16's 1.5
        assert (tables.weight("a", 2, 1) == 1.5).all()


def test_rates():
    tables = filled(bags())
    tables.set_learning_rate(0.0)
    assert tables.learning_rate("a") == 0
    tables.forward(IDS, LENGTHS).backward(np.ones((2, 8), np.float32))
    np.testing.assert_array_equal(tables.weight("a"), np.arange(24).reshape(6, 4))


def test_checkpoints(tmp_path):
    tables = filled(bags())
    tables.save(tmp_path / "saved", progress="step 7")
    other = bags(seed=3)
    assert other.load(tmp_path / "saved") == "step 7"
    for table in ("a", "b"):
        np.testing.assert_array_equal(other.weight(table), tables.weight(table))
    with pytest.raises(LookupError, match="nowhere"):
        other.load(tmp_path / "nowhere")


def test_several_collections_in_one_model(tmp_path):
    modules = {"users": tessera.Module(TABLES[:1]), "history": tessera.Module(TABLES[1:], kind="sequences")}
    model = tessera.DistributedModelParallel(modules)
    assert model["users"].kind == "bags" and model["history"].kind == "sequences"
    assert {m["path"] for m in model.plan.to_dict()["modules"]} == {"users", "history"}
    model.save(tmp_path / "saved")
    with pytest.raises(tessera.NotFound, match='"users", "history"'):
        model["user"]


def test_plans(tmp_path):
    cut = tessera.Planner(world_size=2, shardings={"a": tessera.row_wise(), "b": tessera.table_wise(1)})
    made = tessera.plan(TABLES, cut)
    a, b = made.to_dict()["modules"][0]["tables"]
    assert (a["sharding_type"], [s["rank"] for s in a["shards"]]) == ("row_wise", [0, 1])
    assert (b["sharding_type"], [s["rank"] for s in b["shards"]]) == ("table_wise", [1])
    made.save(tmp_path / "plan.json")
    assert tessera.Plan.load(tmp_path / "plan.json").json == made.json
    of_hosts = {"a": tessera.table_row_wise(1, local_world_size=2), "b": tessera.table_column_wise([3, 2])}
    wide = [tessera.EmbeddingBagConfig(t.num_embeddings, 16, t.name) for t in TABLES]
    hosts = {"world_size": 4, "local_world_size": 2}
    a, b = tessera.plan(wide, tessera.Planner(**hosts, shardings=of_hosts)).to_dict()["modules"][0]["tables"]
    assert [(s["rank"], s["sizes"]) for s in a["shards"]] == [(2, [3, 16]), (3, [3, 16])]
    assert [(s["rank"], s["sizes"]) for s in b["shards"]] == [(3, [4, 8]), (2, [4, 8])]
    grid = {name: tessera.grid_shard([1, 0], local_world_size=2) for name in ("a", "b")}
    a = tessera.plan(wide, tessera.Planner(**hosts, shardings=grid)).to_dict()["modules"][0]["tables"][0]
    assert {(s["rank"], *s["offsets"], *s["sizes"]) for s in a["shards"]} == {
        (2, 0, 0, 3, 8), (3, 3, 0, 3, 8), (0, 0, 8, 3, 8), (1, 3, 8, 3, 8)}  # fmt: skip
    with pytest.raises(ValueError, match="host 1 begins is not known"):
        tessera.grid_shard([0, 1])
    columns = tessera.ParameterConstraints(sharding_types=["column_wise"], min_partition=2)
    searched = tessera.plan(TABLES, tessera.Planner(world_size=4, constraints={"a": columns}))
    assert searched.to_dict()["modules"][0]["tables"][0]["sharding_type"] == "column_wise"
    assert "column_wise" in searched.report
    with pytest.raises(MemoryError, match="GiB|MiB|KiB"):
        tessera.plan([tessera.EmbeddingBagConfig(10**9, 128, "big")], tessera.Planner(ddr_gib=1))
    with pytest.raises(ValueError, match="ssd_gib has 3 numbers for 2 ranks"):
        tessera.plan(TABLES, tessera.Planner(world_size=2, ssd_gib=[1, 2, 3]))


def test_what_was_found():
    found = {p["id"]: p for p in tessera.Runtime.default().plugins()}
    assert found["row_wise"]["kind"] == "tessera.sharder/1"
    with pytest.raises(tessera.TesseraError, match="acme.none"):
        tessera.Runtime(require=["acme.none"])


def test_one_rank_needs_no_network():
    group = tessera.ProcessGroup(rank=0, world_size=1)
    values = np.arange(3, dtype=np.float32)
    group.all_reduce(values)
    group.broadcast(values)
    np.testing.assert_array_equal(group.all_gather(values), [[0, 1, 2]])
    np.testing.assert_array_equal(group.reduce_scatter(values[None]), values)
    np.testing.assert_array_equal(group.all_to_all(values, [3], [3]), values)
    group.barrier()
    assert (group.rank, group.world_size, group.backend) == (0, 1, "local")


def test_quantized_copies():
    tables = filled(bags())
    quantized = tables.quantize("fp16")
    assert quantized.features == tables.features and quantized.outputs == tables.outputs
    assert quantized.bytes == 2 * (24 + 8)
    tables.set_weight("a", np.zeros((6, 4)))  # of no consequence for the copy
    np.testing.assert_array_equal(quantized.lookup(IDS, LENGTHS), POOLED)
    out = np.empty((2, 8), np.float32)
    assert quantized.lookup([3, 0, 1, 1, 2, 2], [1, 2, 2, 0, 0, 1], keys=["y", "a", "z"], out=out) is out
    np.testing.assert_array_equal(out, POOLED)
    with pytest.raises(IndexError, match="ids are 0 to 5"):
        quantized.lookup([6], [1] + [0] * 5)
    with pytest.raises(ValueError, match=r"\[2, 8\]"):
        quantized.lookup(IDS, LENGTHS, out=np.empty((2, 7), np.float32))
    with pytest.raises(ValueError, match='table "b"|dim|multiple'):
        tables.quantize("int4")  # rows of 2
    tables.set_weight("a", np.full((6, 4), np.nan))
    with pytest.raises(ValueError, match='table "a", row 0'):
        tables.quantize()


class OnADevice:
    def __dlpack_device__(self):
        return (2, 0)


@pytest.mark.parametrize(
    "error, sentence, use",
    [
        (ValueError, "ids must be int32 or int64, not float32", lambda t: t.forward(IDS.astype(np.float32), LENGTHS)),
        (ValueError, "ids must be int32 or int64, not uint64", lambda t: t.forward(IDS.astype(np.uint64), LENGTHS)),
        (ValueError, "lengths must be int32 or int64, not uint8", lambda t: t.forward(IDS, LENGTHS.astype(np.uint8))),
        (ValueError, r"ids must be \[n\]", lambda t: t.forward(IDS.reshape(2, 3), LENGTHS)),
        (ValueError, "lengths or offsets, not both", lambda t: t.forward(IDS, LENGTHS, offsets=[0])),
        (
            ValueError,
            "not weighted: is_weighted=True",
            lambda t: t.forward(IDS, LENGTHS, weights=np.ones(6, np.float32)),
        ),
        (
            ValueError,
            "not weighted: is_weighted=True",
            lambda t: t.lookup(IDS, LENGTHS, weights=np.ones(6, np.float32)),
        ),
        (
            ValueError,
            "not weighted: is_weighted=True",
            lambda t: t.quantize("fp16").lookup(IDS, LENGTHS, weights=np.ones(6, np.float32)),
        ),
        (ValueError, "keys is a list of texts", lambda t: t.forward(IDS, LENGTHS, keys="ayz")),
        (ValueError, 'has key "a" more than once', lambda t: t.forward(IDS, LENGTHS, keys=["a", "y", "a"])),
        (ValueError, "offsets begin at 1", lambda t: t.lookup(IDS, offsets=[1, 1, 2, 3, 4, 5, 6])),
        (ValueError, "finished is True or False", lambda t: t.forward(IDS, LENGTHS, finished="no")),
        (ValueError, "count is a whole number, 0 or more", lambda t: t.weight("a", 0, -1)),
        (ValueError, "rows are floats, not complex128", lambda t: t.set_weight("a", np.zeros((6, 4), complex))),
        (ValueError, "learning rate is a finite number, 0 or more", lambda t: t.set_learning_rate(float("nan"))),
        (ValueError, "steps is a whole number", lambda t: t.set_steps("x")),
        (ValueError, "keep is a whole number, 1 ", lambda t: t.save("nowhere", keep=0)),
        (ValueError, "directory is a path", lambda t: t.load(3)),
        (ValueError, "shard is one of shards", lambda t: t.read_shard(0)),
        (ValueError, "root is a whole number", lambda t: t.group.broadcast(np.zeros(2), root="x")),
        (ValueError, "group is a tessera.ProcessGroup", lambda t: bags(group=3)),
        (ValueError, "runtime has no effect with group", lambda t: bags(group=t.group, runtime=tessera.Runtime())),
        (ValueError, "planner is a tessera.Planner", lambda t: bags(planner={"a": tessera.row_wise()})),
        (
            ValueError,
            'shardings\\["a"\\] of the planner is a tessera.Sharding',
            lambda t: bags(planner=tessera.Planner(shardings={"a": "row_wise"})),
        ),
        (
            ValueError,
            "shardings of the planner have no effect beside plan",
            lambda t: bags(plan=t.plan, planner=tessera.Planner(shardings={"a": tessera.row_wise()})),
        ),
        (
            ValueError,
            "search of the planner has no effect with shardings",
            lambda t: bags(planner=tessera.Planner(shardings={"a": tessera.row_wise()}, search="balanced")),
        ),
        (ValueError, "ranks is a list of one or more numbers", lambda t: tessera.column_wise([])),
        (ValueError, "rank is a whole number, 0 or more", lambda t: tessera.table_wise(-1)),
        (ValueError, "there are no tables to plan", lambda t: tessera.plan([])),
        (
            ValueError,
            "feature_names of table .* is a list of texts",
            lambda t: tessera.EmbeddingBagCollection([tessera.EmbeddingBagConfig(6, 4, "a", feature_names="ab")]),
        ),
        (
            ValueError,
            "optimizer is a tessera.Optimizer",
            lambda t: tessera.EmbeddingBagCollection(TABLES, optimizer="exact_sgd"),
        ),
        (
            ValueError,
            "is_weighted has no effect on a collection of sequences",
            lambda t: tessera.EmbeddingCollection([tessera.EmbeddingConfig(6, 4, "a")], is_weighted=True),
        ),
        (ValueError, "plugin_path is a list of directories", lambda t: tessera.Runtime("/tmp")),
        (ValueError, "threads is a whole number, -1 to 1024", lambda t: tessera.Runtime(threads=-5)),
        (ValueError, "timeout_s is a finite number, above 0", lambda t: tessera.ProcessGroup(timeout_s=-1)),
        (
            ValueError,
            "master_port has no effect without rank and world_size",
            lambda t: tessera.ProcessGroup(master_port=29501),
        ),
        (LookupError, 'there is no backend "tpc"', lambda t: tessera.ProcessGroup(rank=0, world_size=1, backend="tpc")),
        (ValueError, "fn is a function", lambda t: tessera.launch(3, 2)),
        (
            ValueError,
            'a layer of the graph has no key "width"',
            lambda t: tessera.pack("nowhere", t, {"layers": [{"name": "l", "width": 1}]}, {}),
        ),
        (
            ValueError,
            'momentum = 0.9 has no effect on the optimizer exact_sgd: name "sgd", which has it',
            lambda t: tessera.Optimizer("exact_sgd", momentum=0.9),
        ),
        (ValueError, "beta1 = 0.5 has no effect", lambda t: tessera.Optimizer("exact_adagrad", beta1=0.5)),
        (ValueError, "lengths or offsets", lambda t: t.forward(IDS)),
        (ValueError, "some values are masked", lambda t: t.forward(np.ma.array(IDS, mask=IDS == 1), LENGTHS)),
        (ValueError, "complex", lambda t: t.forward(IDS.astype(complex), LENGTHS)),
        (ValueError, "ids are 0 to 5", lambda t: t.forward([6], [1, 0, 0])),
        (ValueError, r"\[2, 8\]", lambda t: t.forward(IDS, LENGTHS).backward(np.ones((8, 2), np.float32))),
        (ValueError, r"\[2, 8\]", lambda t: t.forward(IDS, LENGTHS).backward(np.ones((2, 8), np.float64))),
        (ValueError, r"\[2, 8\]", lambda t: t.lookup(IDS, LENGTHS, out=np.empty((2, 7), np.float32))),
        (ValueError, "device", lambda t: t.forward(OnADevice(), LENGTHS)),
        (LookupError, '"c"', lambda t: t.weight("c")),
        (IndexError, "6 rows", lambda t: t.weight("a", 3, 4)),
        (ValueError, "2 strides", lambda t: t.forward(IDS, LENGTHS, strides=[2, 2])),
        (ValueError, "a piece for each rank", lambda t: t.group.reduce_scatter(np.zeros(3))),
        (ValueError, "add up to 2", lambda t: t.group.all_to_all(np.zeros(3), [2], [2])),
        (ValueError, "in place", lambda t: t.group.all_reduce([1.0, 2.0])),
        (ValueError, "fata", lambda t: bags(bounds_check="fata")),
    ],
)
def test_wrong_uses(error, sentence, use):
    tables = bags()
    with pytest.raises(error, match=sentence) as raised:
        use(tables)
    assert isinstance(raised.value, tessera.TesseraError)
    np.testing.assert_array_equal(filled(tables).forward(IDS, LENGTHS).output, POOLED)  # goes on


def test_backward_goes_once():
    step = bags().forward(IDS, LENGTHS)
    step.backward(np.zeros((2, 8), np.float32))
    with pytest.raises(RuntimeError, match="once"):
        step.backward(np.zeros((2, 8), np.float32))


def test_tables_without_optimizer_are_not_trained():
    step = tessera.EmbeddingBagCollection(TABLES).forward(IDS, LENGTHS)
    with pytest.raises(RuntimeError, match="has no optimizer"):
        step.backward(np.zeros((2, 8), np.float32))


@pytest.mark.parametrize("sharding", [None, tessera.row_wise(), tessera.table_wise(0)])
def test_tables_without_optimizer_of_any_size_are_looked_up(sharding):
    """For which the planner takes the compute kernel that needs none."""
    shardings = {"large": sharding} if sharding else {}
    large = tessera.EmbeddingBagConfig(50_000, 8, "large")
    for updated in (None, tessera.Optimizer("exact_sgd", learning_rate=1.0)):
        small = tessera.EmbeddingBagConfig(6, 8, "small", optimizer=updated)
        all_of = {**shardings, **({"small": tessera.table_wise(0)} if sharding else {})}
        tables = tessera.EmbeddingBagCollection([large, small], planner=tessera.Planner(shardings=all_of))
        assert tables.lookup([1, 2], [1, 1]).shape == (1, 16)


def test_a_closed_group_is_refused():
    group = tessera.ProcessGroup(rank=0, world_size=1)
    group.close()
    group.close()
    with pytest.raises(tessera.InvalidArgument, match="this process group was closed"):
        group.barrier()
    with pytest.raises(tessera.InvalidArgument, match="this process group was closed"):
        bags(group=group)


def test_one_thread_at_a_time():
    tables = bags()
    refused, done = [], []

    def train():
        for _ in range(200):
            try:
                tables.forward(IDS, LENGTHS)
                done.append(1)
            except tessera.FailedPrecondition as error:
                refused.append(str(error))

    threads = [threading.Thread(target=train) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) + len(refused) == 600 and done
    assert all("another thread" in text for text in refused)


def _in_child(tables, queue):
    try:
        tables.forward(IDS, LENGTHS)
        queue.put("no error")
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_is_refused():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(bags(), queue))
    child.start()
    assert "forked" in queue.get(timeout=30)
    child.join(timeout=30)
    assert child.exitcode == 0


def test_the_program():
    told = subprocess.run([sys.executable, "-m", "tessera", "--version"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and tessera.__version__ in told.stdout, told.stderr


def test_names_are_loaded_when_they_are_used():
    program = (
        "import sys, tessera; print('numpy' in sys.modules, [n for n in tessera.__all__ if not hasattr(tessera, n)])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert told.stdout == "False []\n", told.stderr
    assert (
        {"launch", "plan", "EmbeddingBagCollection", "TesseraError", "NotFound"}
        <= set(tessera.__all__)
        <= set(dir(tessera))
    )
    with pytest.raises(AttributeError, match="no attribute 'EmbeddingBags'"):
        tessera.EmbeddingBags


def undocumented(body, where):
    """The public classes and functions of a syntax tree without a docstring."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{where}: {node.name}"
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node.body, f"{where}: {node.name}")


def test_every_public_name_has_a_docstring():
    files = sorted(Path(tessera.__file__).parent.rglob("*.py"))
    assert len(files) > 40
    assert [name for f in files for name in undocumented(ast.parse(f.read_text("utf-8")).body, f.name)] == []


def test_no_library_is_a_sentence():
    env = dict(os.environ, TESSERA_LIBRARY="/nowhere/libtessera.so")
    told = subprocess.run([sys.executable, "-c", "import tessera"], env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1 and "libtessera cannot be loaded" in told.stderr


def test_a_missing_library_is_named_with_its_package(tmp_path):
    shared = (Path(tessera._library.home()) / "lib" / "libtessera.so.1").read_bytes()
    if b"libtomlplusplus.so.3" not in shared:
        pytest.skip("this libtessera has toml++ inside")
    (tmp_path / "libtessera.so.1").write_bytes(shared.replace(b"libtomlplusplus.so.3", b"libtomlplusplus.so.9"))
    env = dict(os.environ, TESSERA_LIBRARY=str(tmp_path / "libtessera.so.1"))
    told = subprocess.run([sys.executable, "-c", "import tessera"], env=env, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1 and "install Debian's package libtomlplusplus3" in told.stderr
    error = tessera._library.Error()
    error.message = b"dense.so: cannot be opened: libdnnl.so.2: cannot open shared object file"
    with pytest.raises(tessera.Unavailable, match="libdnnl.so.2.*install Debian's package libdnnl2, or the wheel"):
        tessera._library.raise_error(14, error)
