"""Plans and steps as pictures in notebooks: what they show."""

import xml.etree.ElementTree as ElementTree

import numpy as np

import tessera
from tessera._pictures import plan_picture, training_picture

SVG = "{http://www.w3.org/2000/svg}"
TABLES = [tessera.EmbeddingBagConfig(6, 4, "a"), tessera.EmbeddingBagConfig(4, 2, "<b>")]


def boxes(svg):
    """The boxes by title: x, y, width, height, colour."""
    found = {}
    for box in ElementTree.fromstring(svg).iter(f"{SVG}rect"):
        where = [float(box.get(key)) for key in ("x", "y", "width", "height")]
        assert min(where) >= 0 and where[0] + where[2] <= 680
        found[box.find(f"{SVG}title").text] = (*where, box.get("fill"))
    return found


def words(svg):
    return [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_a_plan_is_drawn_to_scale():
    cut = {"a": tessera.row_wise(), "<b>": tessera.table_wise(1)}
    plan = tessera.plan(TABLES, tessera.Planner(world_size=2, shardings=cut))
    drawn = boxes(plan._repr_html_())
    first, second = drawn["a: rank 0, rows 0 to 2, columns 0 to 3"], drawn["a: rank 1, rows 3 to 5, columns 0 to 3"]
    assert first[2:4] == second[2:4] and second[1] == first[1] + first[3] and first[0] == second[0]
    whole = drawn["<b>: rank 1, rows 0 to 3, columns 0 to 1"]
    assert whole[3] == 2 * first[3] and whole[4] == second[4] != first[4]
    assert drawn["rank 1 holds 20 values"][2] > drawn["rank 0 holds 12 values"][2]
    assert {"a", "<b>", "row_wise, fused", "rank 1: 3 × 4", "rank 0"} <= set(words(plan._repr_html_()))


def test_columns_and_copies_and_rows_that_are_dealt_out():
    tables = [tessera.EmbeddingBagConfig(6, 8, "a"), TABLES[1]]
    cut = {"a": tessera.column_wise([1, 0]), "<b>": tessera.data_parallel()}
    drawn = boxes(tessera.plan(tables, tessera.Planner(world_size=2, shardings=cut))._repr_html_())
    left, right = drawn["a: rank 1, rows 0 to 5, columns 0 to 3"], drawn["a: rank 0, rows 0 to 5, columns 4 to 7"]
    assert left[1] == right[1] and right[0] == left[0] + left[2]
    assert "<b>: ranks 0 to 1, rows 0 to 3, columns 0 to 1" in drawn
    shards = [{"rank": r, "offsets": [0, 0], "sizes": [3, 4]} for r in range(2)]
    table = {"name": "a", "sharding_type": "own", "compute_kernel": "fused", "routed": True, "shards": shards}
    drawn = boxes(plan_picture({"modules": [{"path": "", "tables": [table]}]}))
    assert drawn["a: rank 1, 3 rows of 4"][1] > drawn["a: rank 0, 3 rows of 4"][1]


def test_what_steps_took_and_sent():
    tables = tessera.EmbeddingBagCollection(TABLES, optimizer=tessera.Optimizer("exact_sgd", learning_rate=0.1))
    assert tables.stats()["steps"] == 0 and "0 us a step, in the mean of 0" in words(tables.stats()._repr_html_())
    for _ in range(3):
        step = tables.forward([1, 2, 3], [2, 1])
        step.backward(np.ones_like(step.output))
    stats = tables.stats(restart=True)
    assert (stats["steps"], stats["updates"], stats["rank"], stats["world_size"]) == (3, 3, 0, 1)
    assert stats["tables"]["a"]["lookups"] == 6 and stats["tables"]["a"]["weight_bytes"] >= 6 * 4 * 4
    assert stats["stages"]["lookup"] > 0 and stats["stages"]["table update"] > 0
    drawn = boxes(stats._repr_html_())
    assert sum(box[2] for box in drawn.values()) > 390  # they share 400, each at least half of one
    assert any(title.startswith("lookup: ") for title in drawn)
    told = words(stats._repr_html_())
    assert "rank 0 of 1 has sent: nothing" in told and any(t.startswith("<b>: 3 ids looked up") for t in told), told
    again = tables.stats()
    assert again["steps"] == 0 and sum(again["stages"].values()) == 0 and again["updates"] == 3


def test_a_run_shows_its_losses():
    stages = {"read": {"us_per_step": 10.0}, "lookup": {"us_per_step": 30.0}}
    report = {"steps": 1000, "first_step": 5, "train": {"samples": 9, "samples_per_s": 4.5}, "stages": stages,
              "test": {"auc": 0.75, "seconds": 1.0}, "losses": [1.0] * 500 + [0.5] * 500}  # fmt: skip
    svg = training_picture(report)
    line = ElementTree.fromstring(svg).find(f"{SVG}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    assert len(points) <= 400 and points[0][1] < points[-1][1] and points[0][0] < points[-1][0]
    assert line.find(f"{SVG}title").text == "loss of steps 5 to 1004: 1.0000, at the end 0.5000"
    read, lookup = boxes(svg)["read: 10.0 us, 25 %"], boxes(svg)["lookup: 30.0 us, 75 %"]
    assert (read[2], lookup[2]) == (100, 300) and lookup[0] == read[0] + read[2]
    assert words(svg)[0] == "1000 steps, 9 samples, 4 a second; test: auc 0.7500"
    assert "40 us a step, in the mean of 1000" in words(svg)
