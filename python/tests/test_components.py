"""Sharders and readers written in Python."""

from pathlib import Path

import numpy as np
import pytest

import tessera

STRIPE_CALLS = []


@tessera.sharder("test.stripe")
class Stripe:
    """Row r on rank r mod N."""

    def propose(self, table, topology, limits):
        n = topology.world_size
        STRIPE_CALLS.append((table, topology, limits))
        pieces = [(0, (table.rows - r + n - 1) // n, 0, table.cols) for r in range(n)]
        return [tessera.LayoutPart(pieces, placement="every_rank", combine="sum", routed=True)]

    def route(self, layout, ids):
        return ids % layout.num_row_sets, ids // layout.num_row_sets

    def unroute(self, layout, row_sets, rows):
        return rows * layout.num_row_sets + row_sets


@tessera.sharder("test.halves")
def halves(table, topology, limits):
    """The upper and the lower half of the columns."""
    half = table.cols // 2
    if half * 2 != table.cols:
        return None
    return [tessera.Layout([tessera.LayoutPart([(0, table.rows, 0, half), (0, table.rows, half, half)])])]


TABLES = [
    tessera.EmbeddingBagConfig(7, 4, "a", feature_names=["x", "y"]),
    tessera.EmbeddingBagConfig(5, 6, "b", pooling="mean"),
]


def plan_of(name, ranks=2, tables=TABLES, **more):
    constraints = {table.name: tessera.ParameterConstraints(sharding_types=[name], **more) for table in tables}
    return tessera.plan(tables, tessera.Planner(world_size=ranks, constraints=constraints))


def test_the_planner_asks_a_sharder_in_python():
    plan = plan_of("test.stripe", 3).to_dict()["modules"][0]["tables"]
    assert {table["sharding_type"] for table in plan} == {"test.stripe"}
    assert [shard["sizes"] for shard in plan[0]["shards"]] == [[3, 4], [2, 4], [2, 4]]
    told = next(call for call in STRIPE_CALLS if call[0].name == "b")
    assert told[0] == ("b", 5, 6, "MEAN", ("b",)) and told[1].world_size == 3 and len(told[1].device_bytes) == 3
    plan = plan_of("test.halves").to_dict()["modules"][0]["tables"]
    assert [shard["sizes"] for shard in plan[1]["shards"]] == [[5, 3], [5, 3]]
    listed = {p["id"]: p for p in tessera.Runtime.default().plugins()}
    assert listed["test.stripe"]["kind"] == "tessera.sharder/1" and listed["test.stripe"]["state"] != "rejected"


def rows_after_training():
    """On any number of ranks; as a function of the module, for launch()."""
    group = tessera.ProcessGroup(timeout_s=20)
    out = {}
    for name in ("test.stripe", "row_wise"):
        constraints = {table.name: tessera.ParameterConstraints(sharding_types=[name]) for table in TABLES}
        tables = tessera.EmbeddingBagCollection(
            TABLES, group=group, optimizer=tessera.Optimizer("exact_sgd", learning_rate=0.5),
            planner=tessera.Planner(constraints=constraints))  # fmt: skip
        for _ in range(2):
            step = tables.forward([1, 6, 0, 4, 2, 1], [1, 2, 2, 1] + [0, 0])
            step.backward(np.full_like(step.output, 0.25) + step.output)
        out[name] = {table: tables.weight(table) for table in tables.tables}
        if name == "test.stripe":
            shard = next(s for s in tables.shards() if s.table == "a")
            out["ids"] = tables.shard_ids(shard)
    return out


def test_rows_are_where_it_says():
    alone = rows_after_training()
    ranks = tessera.launch(rows_after_training, 2)
    for rank in ranks:
        for table in ("a", "b"):
            np.testing.assert_allclose(rank["test.stripe"][table], rank["row_wise"][table], rtol=1e-6)
    np.testing.assert_allclose(alone["test.stripe"]["a"], alone["row_wise"]["a"], rtol=1e-6)
    assert ranks[0]["ids"].tolist() == [0, 2, 4, 6] and ranks[1]["ids"].tolist() == [1, 3, 5]


def test_errors_of_a_sharder_name_it():
    @tessera.sharder("test.broken")
    def broken(table, topology, limits):
        return [1 // 0]

    with pytest.raises(
        tessera.TesseraError, match=r'sharder "test.broken" \(in Python\), propose: ZeroDivisionError'
    ) as e:
        plan_of("test.broken")
    assert isinstance(e.value.__cause__, ZeroDivisionError)

    @tessera.sharder("test.broken")  # again, as a notebook does
    def gap(table, topology, limits):
        return [tessera.LayoutPart([(0, table.rows - 1, 0, table.cols)])]

    with pytest.raises(tessera.TesseraError, match='sharder "test.broken".*propose: '):
        plan_of("test.broken")

    @tessera.sharder("test.broken")
    def odd(table, topology, limits):
        return [tessera.LayoutPart([(0, table.rows, 0, table.cols)], placement="everywhere")]

    with pytest.raises(ValueError, match='there is no "everywhere"; use one of any_rank, '):
        plan_of("test.broken")
    with pytest.raises(ValueError, match="not the name of a component"):
        tessera.sharder("Test!")(odd)
    with pytest.raises(TypeError, match="test.none is a function, or has propose"):
        tessera.sharder("test.none")(3)
    with pytest.raises(TypeError, match="route and unroute"):
        tessera.sharder("test.one")(type("One", (), {"propose": odd, "route": odd}))


LOGS = {"mon": [3, 1, 2], "tue": [2, 2]}
COLUMNS = [
    {"name": "clicked", "as": "label"},
    {"name": "user", "as": "ids", "rows": 4},
]
JOB = {"model": {"type": "graph", "embedding_dim": 2}, "column": COLUMNS,
       "data": {"batch": 2, "test": "last", "test_fraction": 0.4},
       "layer": [{"name": "top", "type": "linear", "inputs": ["user"]}],
       "head": [{"name": "click", "input": "top"}]}  # fmt: skip


@tessera.reader("test.days")
class Days:
    """A block for each day."""

    def open(self, path):
        self.days = path.split("+")
        return [tessera.Block(day, len(LOGS[day])) for day in self.days]

    def read(self, i):
        users = LOGS[self.days[i]]
        return {"user": users, "clicked": [user % 2 for user in users]}


@tessera.reader("test.all")
def everything(path):
    for day in path.split("+"):
        yield {"user": np.array(LOGS[day]), "clicked": np.array(LOGS[day]) % 2}


def needs_layers():
    if not any(p["kind"] == "tessera.module/1" for p in tessera.Runtime.default().plugins()):
        pytest.skip("no plugin here computes dense layers")


def job(reader, **data):
    return {**JOB, "data": {**JOB["data"], "reader": reader, "path": "mon+tue", **data}}


def test_a_reader_in_python_feeds_a_job():
    needs_layers()
    given = {"user": LOGS["mon"] + LOGS["tue"], "clicked": [user % 2 for user in LOGS["mon"] + LOGS["tue"]]}
    expected = tessera.train(JOB, given)
    assert expected["data"]["train_rows"] == 3 and expected["test"]["samples"] == 2
    for reader in ("test.days", "test.all"):
        assert tessera.train(job(reader))["losses"] == expected["losses"]


def test_errors_of_a_reader_name_it():
    needs_layers()
    with pytest.raises(LookupError, match=r'reader "test.days" \(in Python\), open: KeyError: \'wed\''):
        tessera.train(job("test.days", path="wed"))

    @tessera.reader("test.short")
    class Short(Days):
        def read(self, i):
            return {"user": [1], "clicked": [1]}

    with pytest.raises(ValueError, match='reader "test.short".*block 0 has 1 rows, but open.* said 3'):
        tessera.train(job("test.short"))
    with pytest.raises(ValueError, match="mon, row 1, column .user."):
        tessera.train({**job("test.days"), "column": [COLUMNS[0], {**COLUMNS[1], "rows": 3}]})
    with pytest.raises(TypeError, match="test.no is a function of a path"):
        tessera.reader("test.no")(7)
    with pytest.raises(tessera.InvalidArgument, match="takes no options"):
        tessera.train(job("test.days?fast=true"))


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_sharder_of_a_page(page):
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
    begin = text.index('@tessera.sharder("acme.stripe")')
    lines = text[begin : text.index("\n\n", begin)]
    assert len(lines.splitlines()) <= 10
    exec(lines, {"tessera": tessera})
    assert plan_of("acme.stripe", 3).json.replace("acme", "test") == plan_of("test.stripe", 3).json
