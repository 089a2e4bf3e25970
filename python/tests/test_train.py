"""tessera.train: the built-in trainer, fed by a program's own data, beside the same rows in a file."""

import ctypes as c
import json
import os
import signal
import threading

import numpy as np
import pytest

import tessera
from tessera._columns import INT64, ArrowArray, ArrowSchema, ArrowStream, blocks_of, wanted_as

if not any(p["kind"] == "tessera.module/1" and p["state"] != "unusable" for p in tessera.Runtime.default().plugins()):
    pytest.skip("no plugin here computes dense layers", allow_module_level=True)

ROWS = 96


def columns():
    random = np.random.default_rng(4)
    users = random.integers(0, 20, ROWS)
    return {
        "clicked": (random.random(ROWS) < 0.3 + 0.03 * users).astype(np.int64),
        "age": random.normal(size=ROWS).astype(np.float32),
        "user": users,
        "film": [f"film {i}" for i in random.integers(0, 30, ROWS)],
        "tags": [[f"t{k}" for k in random.integers(0, 6, n)] for n in random.integers(0, 4, ROWS)],
    }


CONFIG = {
    "job": {"seed": 3, "device": "cpu"},
    "model": {"embedding_dim": 4, "bottom_mlp": [8, 4], "top_mlp": [8, 1]},
    "data": {"batch": 16, "epochs": 2, "test": "last", "test_fraction": 0.25},
    "report": {"log_every": 4},
    "column": [
        {"name": "clicked", "as": "label"},
        {"name": "age", "as": "dense"},
        {"name": "user", "as": "ids", "rows": 20},
        {"name": "film", "as": "ids", "ids": "hash", "rows": 50},
        {"name": "tags", "as": "ids", "ids": "vocabulary", "separator": ";"},
    ],
}


def batches(data, size):
    for first in range(0, ROWS, size):
        yield {name: values[first : first + size] for name, values in data.items()}


def test_rows_of_a_program_train_like_those_of_a_file(tmp_path):
    data = columns()
    lines = ["clicked,age,user,film,tags"]
    for clicked, age, user, film, tags in zip(*data.values()):
        lines.append(f"{clicked},{age!r},{user},{film},{';'.join(tags)}".replace("np.float32(", "").replace(")", ""))
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    of_file = {**CONFIG, "data": {**CONFIG["data"], "reader": "csv", "path": str(tmp_path / "clicks.csv")}}
    expected = tessera.train(of_file)
    assert len(expected["losses"]) == 2 * 72 // 16 + 1 and expected["test"]["samples"] == 24
    assert expected._repr_html_().startswith("<iframe ") and "&quot;losses_each&quot;: 1" in expected._repr_html_()
    untold = [{key: value for key, value in one.items() if key != "separator"} for one in CONFIG["column"]]
    for given in (data, batches(data, 40), list(batches(data, 7))):
        assert tessera.train({**CONFIG, "column": untold}, given)["losses"] == expected["losses"]


class Frame:
    """A frame like that of pandas without pyarrow."""

    def __init__(self, data):
        self.items = data.items

    def __arrow_c_stream__(self, requested_schema=None):
        raise ImportError("Import pyarrow failed")


def test_frames_without_pyarrow():
    expected = tessera.train(CONFIG, columns())["losses"]
    assert tessera.train(CONFIG, Frame(columns()))["losses"] == expected
    assert tessera.train(CONFIG, map(Frame, batches(columns(), 20)))["losses"] == expected
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(columns())
    assert tessera.train(CONFIG, frame)["losses"] == expected
    assert tessera.train(CONFIG, [frame[:50], frame[50:]])["losses"] == expected
    frame["film"], frame["when"] = frame["film"].astype("category"), pd.Timestamp("2026-03-01")
    assert tessera.train(CONFIG, frame)["losses"] == expected


def test_ids_that_are_floats_where_one_is_missing():
    data = columns()
    job = {**CONFIG, "column": [*CONFIG["column"][:2], {"name": "user", "as": "ids", "ids": "vocabulary"}]}
    users = [None if i % 9 == 0 else int(2**24 + u) for i, u in enumerate(data["user"])]
    expected = tessera.train(job, {**data, "user": [str(u) if u else None for u in users]})["losses"]
    floats = np.array([np.nan if u is None else u for u in users])
    for given in (users, floats, floats.astype(object)):
        assert tessera.train(job, {**data, "user": given})["losses"] == expected


def test_numbers_keep_their_digits_until_they_are_transformed():
    data = columns()
    times = 1_700_000_000_000 + 1000 * np.arange(ROWS)[::-1]  # in milliseconds, which 32 bits do not tell apart
    kept = times[: ROWS * 3 // 4].astype(float)
    scaled = ((times - kept.mean()) / kept.std()).astype(np.float32)
    job = {**CONFIG, "column": [*CONFIG["column"][:1], {**CONFIG["column"][1], "transform": ["standardise"]},
                                *CONFIG["column"][2:]]}  # fmt: skip
    expected = tessera.train(CONFIG, {**data, "age": scaled})["losses"]
    for given in (times, times.astype(float), times.astype("datetime64[ms]"), [str(time) for time in times]):
        np.testing.assert_allclose(tessera.train(job, {**data, "age": given})["losses"], expected, rtol=1e-4)


def test_what_is_missing_or_too_large_has_a_place():
    def with_age(value, row, **more):
        age = np.arange(ROWS, dtype=float)
        age[row] = value
        column = {**CONFIG["column"][1], **more}
        data = {**columns(), "age": age}
        return {**CONFIG, "column": [CONFIG["column"][0], column, *CONFIG["column"][2:]]}, data

    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match='row 8, column "age": the value is missing'):
            tessera.train(*with_age(value, 7))
        assert tessera.train(*with_age(value, 7, missing=0.0), max_steps=1)["steps"] == 1
    with pytest.raises(ValueError, match=r'row 8, column "age": 1e\+300 is too large'):
        tessera.train(*with_age(1e300, 7))
    assert tessera.train(*with_age(1e300, 7, transform=["log1p"]), max_steps=1)["steps"] == 1
    job, data = with_age(1e300, 7)
    halves = [{name: values[part] for name, values in data.items()} for part in (slice(5), slice(5, None))]
    with pytest.raises(ValueError, match='row 8, column "age"'):
        tessera.train(job, halves)


def test_tables_of_other_libraries():
    pa, data = pytest.importorskip("pyarrow"), columns()
    expected = tessera.train(CONFIG, data)
    table = pa.table({name: pa.array(values) for name, values in data.items()})
    assert tessera.train(CONFIG, table)["losses"] == expected["losses"]
    films = table.set_column(3, "film", table["film"].dictionary_encode())
    assert tessera.train(CONFIG, iter(films.slice(3).to_batches(10)))["losses"] != expected["losses"]
    assert tessera.train(CONFIG, iter(films.to_batches(10)))["losses"] == expected["losses"]
    pl, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    assert tessera.train(CONFIG, pl.from_arrow(table))["losses"] == expected["losses"]
    assert tessera.train(CONFIG, duckdb.arrow(table))["losses"] == expected["losses"]


SEEN = [{}, {3: 0.5}, {7: 2.0, 1: -0.25}, {1: 1.0, 2: 1.0, 5: 0.125}]
WEIGHTED = {**CONFIG, "column": [*CONFIG["column"][:3], {"name": "seen", "as": "ids", "rows": 8, "weighted": True}]}


def weighted_columns():
    """And the lists in their other forms: pairs, and texts as a CSV file has them."""
    random, data = np.random.default_rng(6), {name: columns()[name] for name in ("clicked", "age", "user")}
    data["seen"] = [SEEN[i] for i in random.integers(0, len(SEEN), ROWS)]
    pairs = [list(row.items()) for row in data["seen"]]
    texts = [";".join(f"{i}:{w}" for i, w in row) for row in pairs]
    return data, {**data, "seen": pairs}, {**data, "seen": texts}


def test_lists_whose_ids_have_weights(tmp_path):
    mappings, pairs, texts = weighted_columns()
    separated = {**WEIGHTED, "column": [*WEIGHTED["column"][:3], {**WEIGHTED["column"][3], "separator": ";"}]}
    lines = ["clicked,age,user,seen", *(f"{c},{a},{u},{s}" for c, a, u, s in zip(*texts.values()))]
    (tmp_path / "seen.csv").write_text("\n".join(lines) + "\n")
    of_file = {**separated, "data": {**CONFIG["data"], "reader": "csv", "path": str(tmp_path / "seen.csv")}}
    expected = tessera.train(of_file)["losses"]
    for given in (mappings, pairs, texts, batches(pairs, 25)):
        assert tessera.train(separated, given)["losses"] == expected
    unweighted = {**mappings, "seen": [{i: 1 for i in row} for row in mappings["seen"]]}
    assert tessera.train(separated, unweighted)["losses"] != expected, "weights tell"
    for wrong, sentence in [
        ([[1, 2]] * ROWS, "it has no weights"),
        ([[(1, "x")]] * ROWS, "a weight is not a number"),
        ([{1: float("nan")}] * ROWS, "is not a finite number"),
        (["3"] * ROWS, 'no weight after ":"'),
        (["3:x"] * ROWS, "is not a weight"),
    ]:
        with pytest.raises((ValueError, TypeError), match=sentence):
            tessera.train(separated, {**mappings, "seen": wrong})


def test_maps_and_pairs_of_arrow_are_weighted_lists():
    pa, (data, pairs, _) = pytest.importorskip("pyarrow"), weighted_columns()
    expected = tessera.train(WEIGHTED, data)["losses"]
    pair = pa.struct([("id", pa.int32()), ("weight", pa.float64())])
    structs = [[{"id": i, "weight": w} for i, w in row] for row in pairs["seen"]]
    for seen in (pa.array(pairs["seen"], pa.map_(pa.int64(), pa.float32())), pa.array(structs, pa.list_(pair))):
        table = pa.table({**{name: pa.array(data[name]) for name in ("clicked", "age", "user")}, "seen": seen})
        assert tessera.train(WEIGHTED, table)["losses"] == expected
        assert tessera.train(WEIGHTED, iter(table.to_batches(17)))["losses"] == expected
    nothing = pa.array([[{"id": 1, "weight": None}]] * ROWS, pa.list_(pair))
    with pytest.raises(tessera.InvalidArgument, match="nothing, inside of pairs"):
        tessera.train(WEIGHTED, table.set_column(3, "seen", nothing))


def test_weights_that_a_column_does_not_take_are_refused(tmp_path):
    data, pairs, _ = weighted_columns()
    plain = {**WEIGHTED, "column": [*WEIGHTED["column"][:3], {"name": "seen", "as": "ids", "ids": "vocabulary"}]}
    for given in (data, pairs):
        with pytest.raises(tessera.InvalidArgument, match='column "seen" .*with weights, but .* no weighted = true'):
            tessera.train(plain, given)
    bare = {**data, "seen": [list(row) for row in data["seen"]]}
    with pytest.raises(tessera.InvalidArgument, match='column "seen": it has weights, but lists without'):
        tessera.train(plain, [bare, data])
    model = tessera.train(plain, bare, save=tmp_path / "run").model
    with pytest.raises(tessera.InvalidArgument, match='column "seen" .*with weights'):
        model.predict(data)


def test_weighted_lists_without_values(tmp_path):
    data, _, _ = weighted_columns()
    model = tessera.train(WEIGHTED, data, save=tmp_path / "run").model
    rows = {name: values[:2] for name, values in data.items() if name != "clicked"}
    (both,) = model.predict({**rows, "seen": [None, {1: 0.5}]}).values()
    for nothing in (None, {}, []):
        (one,) = model.predict({**{name: values[:1] for name, values in rows.items()}, "seen": [nothing]}).values()
        assert one[0] == both[0]


def test_no_rows_are_nothing_to_train(tmp_path):
    rows = batches(columns(), 32)
    model = tessera.train(CONFIG, rows, save=tmp_path / "run").model
    with pytest.raises(tessera.InvalidArgument, match="nothing to train: the data .* no rows .* read only once"):
        tessera.train(CONFIG, rows, save=tmp_path / "other")
    assert not list(tmp_path.glob("other/save-*"))
    for nothing in ([], {name: [] for name in columns()}):
        with pytest.raises(tessera.InvalidArgument, match="no rows to train on$"):
            tessera.train(CONFIG, nothing)
    with pytest.warns(UserWarning, match=r"predict\(\) has no rows: an iterator can be read only once"):
        model.predict(rows)


def test_times_as_numbers_have_one_unit(tmp_path):
    config = {**CONFIG, "column": [CONFIG["column"][0], {"name": "at", "as": "dense", "transform": ["standardise"]},
                                   CONFIG["column"][2]]}  # fmt: skip
    days = np.datetime64("2026-01-01") + np.arange(ROWS)

    def data(unit, rows=slice(None)):
        of = {**columns(), "at": days.astype(f"datetime64[{unit}]")}
        return {name: of[name][rows] for name in ("clicked", "at", "user")}

    model = tessera.train(config, data("ns"), save=tmp_path / "run").model
    (scores,) = model.predict(data("ns")).values()
    assert len(set(scores.tolist())) > 20
    for unit in ("us", "s", "D"):
        with pytest.raises(tessera.InvalidArgument, match='"at" holds times of the unit .* trained on .* the unit ns'):
            model.predict(data(unit))
    with pytest.raises(tessera.InvalidArgument, match='"at": it has times in the unit ms, but those of the first .* s'):
        tessera.train(config, [data("s", slice(0, 40)), data("ms", slice(40, ROWS))])
    with pytest.raises(tessera.InvalidArgument, match='"at" holds times of the unit ms'):
        tessera.train(config, data("s"), test=data("ms"))
    words = {**config, "column": [*CONFIG["column"][:2], {"name": "at", "as": "ids", "ids": "vocabulary"}]}
    both = {"age": columns()["age"], **data("s")}
    model = tessera.train(words, both, save=tmp_path / "words").model
    (of_s,), (of_ns,) = model.predict(both).values(), model.predict({**both, "at": data("ns")["at"]}).values()
    assert of_s.tolist() == of_ns.tolist(), "words do not depend on the unit"


def test_progress_an_end_and_a_checkpoint(tmp_path):
    told = []
    whole = tessera.train(CONFIG, columns(), test=columns(), watch=told.append, save=tmp_path / "whole")
    assert whole["test"]["samples"] == ROWS and not whole["stopped"]
    assert [event["step"] for event in told] == [4, 8, 12] and all(event["loss"] > 0 for event in told)
    job = tmp_path / "job.toml"
    job.write_text(tessera._train.to_toml(CONFIG))
    part = tessera.train(job, columns(), test=columns(), watch=lambda e: e["step"] == 4, save=tmp_path / "part")
    assert part["stopped"] and 4 <= part["steps"] < 12 and part["test"]["auc"] is None
    rest = tessera.train(job, columns(), test=columns(), load=tmp_path / "part")
    assert rest["first_step"] == part["steps"]
    assert part["losses"] + rest["losses"] == whole["losses"]
    assert tessera.train(job, columns(), overrides=["data.epochs=1"], max_steps=2)["steps"] == 2
    untouched = {"load": tmp_path / "whole", "overrides": ["data.epochs=3"], "max_steps": 0}
    none = tessera.train(job, columns(), test=columns(), **untouched)
    assert (none["steps"], none["first_step"], none["test"]["auc"]) == (0, 12, whole["test"]["auc"])
    assert tessera.train(job, columns(), max_steps=0)["losses"] == []


def trained_rank():
    told = []
    report = tessera.train(CONFIG, columns(), group=tessera.ProcessGroup(timeout_s=20), watch=told.append)
    return report["losses"], report["test"]["auc"], len(told)


def test_ranks_share_the_rows():
    one = tessera.train(CONFIG, columns())
    (losses, auc, told), other = tessera.launch(trained_rank, 2)
    np.testing.assert_allclose(losses, one["losses"], rtol=1e-4)
    assert other == (losses, auc, 0) and told == 2 and auc == pytest.approx(one["test"]["auc"], abs=1e-3)


def test_ctrl_c_ends_training(tmp_path):
    steps = []

    def press(event):
        steps.append(event["step"])
        threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        tessera.train(CONFIG, columns(), overrides=["data.epochs=100000"], watch=press, save=tmp_path / "saved")
    assert steps and (tmp_path / "saved").exists()


def test_what_cannot_be_is_said():
    def without(name):
        return {key: values for key, values in columns().items() if key != name}

    with pytest.raises(tessera.InvalidArgument, match="data.*epochz.*did you mean|epochz"):
        tessera.train({**CONFIG, "data": {"epochz": 1}}, columns())
    with pytest.raises(LookupError, match='the data given to train.*no column "user"'):
        tessera.train(CONFIG, without("user"))
    with pytest.raises(ValueError, match="different numbers of rows"):
        tessera.train(CONFIG, {**columns(), "user": [1, 2]})
    with pytest.raises(ValueError, match='column "user": it has text, but whole numbers are wanted'):
        tessera.train(CONFIG, {**columns(), "user": ["x"] * ROWS})
    strange = np.zeros(ROWS, complex)
    assert tessera.train(CONFIG, {**columns(), "other": strange}, max_steps=1)["steps"] == 1, "no [[column]] uses it"
    with pytest.raises(ValueError, match='column "user": an array of complex128 with 1 dimensions is not a column'):
        tessera.train(CONFIG, {**columns(), "user": strange})
    with pytest.raises(ValueError, match='column "user": an array of int64 with 0 dimensions is not a column'):
        tessera.train(CONFIG, {**columns(), "user": 3})
    with pytest.raises(ValueError, match='row 1, column "clicked"'):
        tessera.train(CONFIG, {**columns(), "clicked": [3] * ROWS})
    with pytest.raises(ValueError, match="an object of type int is not data") as raised:
        tessera.train(CONFIG, 7)
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(ZeroDivisionError):
        tessera.train(CONFIG, columns(), watch=lambda event: 1 / 0)
    with pytest.raises(ValueError, match="test needs data"):
        tessera.train(CONFIG, test=columns())

    for sentence, arguments in [
        ("save_every has no effect without save", {"save_every": 3}),
        ("keep has no effect without save", {"keep": 3}),
        ("new_data has no effect without load", {"new_data": True}),
        ("max_steps is a whole number, 0 or more", {"max_steps": -1}),
        ("save_every is a whole number", {"save": "x", "save_every": 1.5}),
        ("overrides is a list of texts", {"overrides": "data.epochs=2"}),
        ("overrides is a list of texts", {"overrides": None}),
        ("data.path=.* has no effect with data", {"overrides": ['data.path="x"']}),
        ("watch is a function", {"watch": 3}),
        ("group is a tessera.ProcessGroup", {"group": 3}),
        ("save is the path of a directory", {"save": ""}),
    ]:
        with pytest.raises(ValueError, match=sentence):
            tessera.train(CONFIG, columns(), **arguments)
    for config, data, sentence in [
        (CONFIG, "clicks.csv", "is not data.*for a file, set .*reader"),
        (columns, CONFIG, "config is the path of a TOML file"),
        ({"model": {}}, columns(), r"no \[\[column\]\]s, .* tessera.describe"),
        ({**CONFIG, "data": {"batch": object()}}, columns(), "data.batch of the config is of type object"),
        ({**CONFIG, "data": {"batch": 8, "test_path": "x.csv"}}, columns(), "data.test_path of the job"),
        ({**CONFIG, "model": {**CONFIG["model"], "top_mpl": [1]}}, columns(), "top_mpl"),
        ({**CONFIG, "column": [{**CONFIG["column"][0], "tresh": 1}]}, columns(), "tresh"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            tessera.train(config, data)
    with pytest.raises(LookupError, match="there is no config nowhere.toml"):
        tessera.train("nowhere.toml", columns())
    with pytest.warns(UserWarning, match=r"\[comm\] of the config has no effect"):
        tessera.train({**CONFIG, "comm": {"timeout_s": 3}}, columns(), max_steps=0)

    def broken():
        yield columns()
        raise RuntimeError("the connection is gone")

    with pytest.raises(tessera.TesseraError, match="the data given to train.*the connection is gone") as raised:
        tessera.train(CONFIG, broken())
    assert isinstance(raised.value.__cause__, RuntimeError)


# ---- Arrow's C data interface, by hand: what pyarrow, polars and DuckDB hand out


class ByHand:
    """A stream of one record batch of these (name, format, length, buffers, children, dictionary)."""

    def __init__(self, *arrays, offset=0, length):
        self._arrays, self._offset, self._length, self._kept, self.released = arrays, offset, length, [], 0

    def _schema(self, out, name, kind, children, dictionary=None, flags=2):
        parts = [ArrowSchema() for _ in children]
        for part, (child, format, _, _, inner, words) in zip(parts, children):
            self._schema(part, child, format, inner, words)
        pointers = (c.POINTER(ArrowSchema) * max(1, len(parts)))(*[c.pointer(part) for part in parts])
        if dictionary:
            out.dictionary = c.pointer(ArrowSchema())
            self._schema(out.dictionary.contents, "", dictionary[1], [])
        words = kind.encode(), name.encode()  # of which only addresses are stored
        out.format, out.name, out.flags = *words, flags
        out.n_children, out.children, out.release = len(parts), pointers, self._release_schema
        self._kept += [parts, pointers, words]

    def _array(self, out, length, offset, buffers, children, dictionary=None, null_count=-1):
        parts = [ArrowArray() for _ in children]
        for part, (_, _, count, inside, inner, words) in zip(parts, children):
            self._array(part, count, 0, inside, inner, words)
        pointers = (c.POINTER(ArrowArray) * max(1, len(parts)))(*[c.pointer(part) for part in parts])
        held = [
            None if b is None else np.frombuffer(b if isinstance(b, bytes) else b.tobytes(), np.uint8) for b in buffers
        ]
        addresses = (c.c_void_p * max(1, len(held)))(*[None if b is None else b.ctypes.data for b in held])
        if dictionary:
            out.dictionary = c.pointer(ArrowArray())
            self._array(out.dictionary.contents, dictionary[2], 0, dictionary[3], [])
        out.length, out.null_count, out.offset, out.n_buffers, out.n_children = (
            length, null_count, offset, len(held), len(parts))  # fmt: skip
        out.buffers, out.children, out.release = addresses, pointers, self._release_array
        self._kept += [parts, pointers, held, addresses]

    def __arrow_c_stream__(self, requested_schema=None):
        def release(kind):
            def body(raw):
                self.released += 1
                raw.contents.release = kind()

            return kind(body)

        self._release_schema = release(dict(ArrowSchema._fields_)["release"])
        self._release_array = release(dict(ArrowArray._fields_)["release"])
        given = []

        def get_schema(_, out):
            self._schema(out.contents, "", "+s", self._arrays)
            return 0

        def get_next(_, out):
            c.memset(out, 0, c.sizeof(ArrowArray))
            if not given:
                self._array(out.contents, self._length, self._offset, [None], self._arrays)
            given.append(1)
            return 0

        kinds = dict(ArrowStream._fields_)
        self._stream = ArrowStream(
            kinds["get_schema"](get_schema), kinds["get_next"](get_next),
            kinds["get_last_error"](lambda _: None), kinds["release"](lambda _: None),
        )  # fmt: skip
        new = c.pythonapi.PyCapsule_New
        new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
        return new(c.addressof(self._stream), b"arrow_array_stream", None)


def test_arrow_columns():
    long = b"a text of more than twelve"
    view = np.zeros(5, np.dtype([("length", "<i4"), ("text", "S12")]))
    view["length"], view["text"] = (
        [2, 0, len(long), 1, 3],
        [b"ab", b"", long[:4] + b"\0\0\0\0" + b"\1\0\0\0", b"c", b"xyz"],
    )
    words = ("", "u", 2, [None, np.array([0, 1, 3], "i4"), b"abb"], [], None)
    ids = ("item", "s", 6, [None, np.array([5, 6, 7, 8, 9, 10], "i2")], [], None)
    stream = ByHand(
        ("bits", "b", 5, [None, np.array([0b10110], "u1")], [], None),
        ("floats", "g", 5, [np.array([0b11101], "u1"), np.array([1, 2, 3, 4, 5], "f8")], [], None),
        ("large", "U", 5, [None, np.array([0, 2, 2, 3, 5, 6], "i8"), b"aabccd"], [], None),
        ("views", "vu", 5, [None, view, b"-" + long], [], None),
        ("dictionary", "C", 5, [None, np.array([1, 0, 1, 1, 0], "u1")], [], words),
        ("lists", "+l", 5, [None, np.array([0, 1, 1, 4, 4, 6], "i4")], [ids], None),
        ("pairs", "+w:2", 5, [None], [("item", "l", 10, [None, np.arange(10)], [], None)], None),
        ("days", "tdD", 5, [None, np.array([1, 2, 3, 4, 5], "i4")], [], None),
        ("times", "tsu:UTC", 5, [np.array([0b11011], "u1"), np.arange(5) + 10**15], [], None),
        offset=1,
        length=3,
    )
    (block,) = blocks_of(stream)
    assert block["bits"].values.tolist() == [1, 1, 0]
    assert block["floats"].values.tolist() == [2, 3, 4] and block["floats"].present.tolist() == [0, 1, 1]
    assert block["large"].words() == [b"", b"b", b"cc"]
    assert block["views"].words() == [b"", long, b"c"]
    assert block["dictionary"].words() == [b"a", b"bb", b"bb"]
    assert block["lists"].lists.tolist() == [0, 0, 3, 3] and block["lists"].values.tolist() == [6, 7, 8]
    assert block["pairs"].lists.tolist() == [0, 2, 4, 6] and block["pairs"].values.tolist() == [2, 3, 4, 5, 6, 7]
    assert block["days"].values.tolist() == [2, 3, 4]
    assert block["times"].values[[0, 2]].tolist() == [10**15 + 1, 10**15 + 3]
    assert block["times"].present.tolist() == [1, 0, 1]
    del block
    assert stream.released == 2  # the schema, and the batch
    other = "age", "g", 1, [None, np.array([2.0])], [], None
    (block,) = blocks_of(ByHand(("span", "tiM", 1, [None, np.array([1], "i4")], [], None), other, length=1))
    assert block["age"].values.tolist() == [2]
    with pytest.raises(ValueError, match='it is of Arrow\'s type "tiM"'):
        wanted_as(block["span"], INT64, False, "")


def test_a_job_as_toml():
    text = tessera._train.to_toml(
        {"a": {"b": [1, 2.5, 'x"y'], "c": True, "n": None}, "t": [{"o": {"name": "sgd", "k": 1}}]}
    )
    assert text == '[a]\nb = [1, 2.5, "x\\"y"]\nc = true\n[[t]]\no = {name = "sgd", k = 1}\n'
    assert json.loads('"x\\"y"') == 'x"y'


def test_doubts_are_told():
    data = columns()
    data["told"] = [f"t{label}" for label in data["clicked"]]
    told = {**CONFIG, "column": CONFIG["column"] + [{"name": "told", "as": "ids", "ids": "vocabulary"}]}
    told["data"] = {**CONFIG["data"], "epochs": 60}
    with pytest.warns(UserWarning, match="often means that a column tells the label"):
        assert tessera.train(told, data)["test"]["auc"] == 1
    worse = {**CONFIG, "dense_optimizer": {"name": "sgd", "learning_rate": 3.0}}
    with pytest.warns(UserWarning, match="normalized_entropy above 1"):
        tessera.train(worse, data)
    other = {**data, "tags": [["unknown"] * 2] * ROWS}
    with pytest.warns(UserWarning, match="tags: 100 % of the .* ids were not in the vocabulary"):
        tessera.train(CONFIG, data, test=other)
    with pytest.raises(tessera.InvalidArgument, match="test is data itself"):
        tessera.train(CONFIG, data, test=data)
