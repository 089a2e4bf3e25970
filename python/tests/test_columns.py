"""Columns of a program's data, as the library is handed them: floats that are ids, what is missing."""

import datetime
from decimal import Decimal

import numpy as np
import pytest

from tessera._columns import FLOAT32, FLOAT64, INT64, TEXT, blocks_of, column_of, wanted_as

NAN = float("nan")


def words(value, is_list=False):
    return wanted_as(column_of(value), TEXT, is_list, ",").words()


def test_whole_floats_are_the_texts_of_whole_numbers():
    assert words(np.array([429.0, NAN, 16777217.0, -0.0])) == [b"429", b"", b"16777217", b"0"]
    assert words(np.array([100000.0, 1e300, 0.5])) == [b"100000", b"1e+300", b"0.5"], "each by itself"
    assert words([7.0, None, 8.0, NAN]) == [b"7", b"", b"8", b""] and words([7, None, 8]) == [b"7", b"", b"8"]
    assert words(np.array([[1.0, 2.0], [3.0, 4.5]]), True) == [b"1", b"2", b"3", b"4.5"]
    column = wanted_as(column_of(np.array([16777217.0, NAN])), INT64, False, ",")
    assert column.values.tolist() == [16777217, 0] and column.present.tolist() == [1, 0]
    assert wanted_as(column_of(np.array([3.0, NAN])), INT64, True, ",").lists.tolist() == [0, 1, 1]
    column = wanted_as(column_of(np.array([0.1, NAN])), FLOAT32, False, ",")
    assert column.values.dtype == np.float32 and column.present.tolist() == [1, 0]
    with pytest.raises(ValueError, match="floats that are not whole numbers, .*: 0.5"):
        wanted_as(column_of(np.array([1.0, 0.5])), INT64, False, ",")
    with pytest.raises(ValueError, match=r"1e\+300 does not fit into 64 bits with a sign"):
        wanted_as(column_of(np.array([1.0, 1e300])), INT64, False, ",")


def test_nothing_among_texts_and_lists():
    assert words(np.array(["a", NAN, None], object)) == [b"a", b"", b""]
    column = wanted_as(column_of([[1], NAN, None, [2, 3]]), INT64, True, ",")
    assert column.lists.tolist() == [0, 1, 1, 1, 3] and column.values.tolist() == [1, 2, 3]
    for wrong in ([[1, None]], [["a", NAN]], np.array([[1.0, NAN]])):
        with pytest.raises(ValueError, match="a list has nothing, or NaN"):
            column_of(wrong)


def test_masked_values_are_missing():
    mask = [False, True, False]
    for values in ([1.5, 2, 3], [1, 2, 3], [True, False, True], ["a", "b", "c"],
                   np.array(["2026-03-01", "2026-03-02", "2026-03-03"], "datetime64[s]")):  # fmt: skip
        masked = np.ma.array(values, mask=mask)
        assert words(masked)[1] == b"" and words(masked)[::2] == words(np.asarray(values))[::2]
        assert column_of(masked).present.tolist() == [1, 0, 1]
    assert column_of(np.ma.array([np.nan, 2, 3], mask=mask)).present.tolist() == [0, 0, 1]
    assert column_of(np.ma.array([1, 2, 3])).present is None
    assert column_of([1, np.ma.masked, 3]).present.tolist() == [1, 0, 1]
    assert column_of([[1], np.ma.masked]).lists.tolist() == [0, 1, 1]
    matrix = np.arange(6).reshape(3, 2)
    assert column_of(np.ma.array(matrix)).lists.tolist() == [0, 2, 4, 6]
    for inside in (np.ma.array(matrix, mask=matrix == 3), [np.ma.array([1, 2], mask=[0, 1])]):
        with pytest.raises(ValueError, match="a list has nothing"):
            column_of(inside)


def test_times_are_numbers_of_their_unit():
    when = np.array(["2026-03-01", "NaT", "1970-01-02"], "datetime64[s]")
    column = column_of(when)
    assert column.values.tolist() == [1772323200, 0, 86400] and column.present.tolist() == [1, 0, 1]
    assert column_of(when.astype("datetime64[ms]")).values.tolist() == [1772323200000, 0, 86400000]
    assert words(when) == [b"2026-03-01", b"", b"1970-01-02"]
    assert words(when.astype("datetime64[M]")[[0]]) == [b"2026-03-01"], "of other units the first day"
    assert words(np.array(["2026-03-01T12:30"], "datetime64[m]")) == [b"2026-03-01 12:30:00"]


def test_durations_are_seconds_in_each_unit():
    span = np.array([90, "NaT"], "timedelta64[m]")
    for unit in ("m", "s", "ms", "us", "ns"):
        column = column_of(span.astype(f"timedelta64[{unit}]"))
        assert column.values[0] == 5400 and column.present.tolist() == [1, 0], unit
        assert words(span.astype(f"timedelta64[{unit}]")) == [b"5400", b""], unit
    assert column_of([datetime.timedelta(minutes=90), None]).values[0] == 5400
    pa = pytest.importorskip("pyarrow")
    for unit in ("s", "ms", "us", "ns"):
        column = column_of(pa.array([datetime.timedelta(minutes=90), None], pa.duration(unit)))
        assert column.values[0] == 5400 and column.present.tolist() == [1, 0], unit
    with pytest.raises(TypeError, match="no length in seconds"):
        column_of(np.array([1], "timedelta64[M]"))


def test_columns_of_pandas():
    pd = pytest.importorskip("pandas")
    for kind in ("object", "string", "category"):
        assert words(pd.Series(["a", None, "b"], dtype=kind)) == [b"a", b"", b"b"]
    large = 2**53 + 1
    assert words(pd.Series([large, None], dtype="Int64")) == [str(large).encode(), b""]
    assert words(pd.Series([True, None], dtype="boolean")) == [b"true", b""]
    assert words(pd.Series([5, None, 6], dtype="category")) == [b"5", b"", b"6"]
    times = pd.to_datetime(pd.Series(["2026-03-01", None])).dt.tz_localize("Asia/Tokyo")
    column = column_of(times.astype("M8[s, UTC]"))
    assert column.values.tolist() == [1772323200 - 9 * 3600, 0] and column.present.tolist() == [1, 0]


LARGE = 2**63 + 5
UTC, DAY = datetime.timezone.utc, datetime.date(2024, 1, 31)
NOON = datetime.datetime(2024, 1, 31, 12, 34, 56, 500000)


@pytest.mark.parametrize(
    "value, expected",
    [
        (np.array([LARGE, 3], np.uint64), ["9223372036854775813", "3"]),
        ([LARGE, 3, None], ["9223372036854775813", "3", ""]),
        ([LARGE, -3], ["9223372036854775813", "-3"]),
        ([2**70], ["1180591620717411303424"]),
        (np.array([0.1, 4.0, NAN, np.inf], np.float32), ["0.10000000149011612", "4", "", ""]),
        ([np.float32(0.1), 1], ["0.10000000149011612", "1"]),
        (np.array([0.1, 1e-7, 1e-4, 1e22, 2.0**53, -0.0]), ["0.1", "1e-07", "1e-04", "1e+22", "9007199254740992", "0"]),
        ([2**53 + 1, 0.5], ["9007199254740993", "0.5"]),
        ([True, False, None], ["true", "false", ""]),
        (np.array([True, False]), ["true", "false"]),
        ([DAY, None], ["2024-01-31", ""]),
        ([NOON, datetime.datetime(2024, 1, 31)], ["2024-01-31 12:34:56.5", "2024-01-31"]),
        ([NOON.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))], ["2024-01-31 10:34:56.5"]),
        ([NOON.time(), datetime.time(0)], ["12:34:56.5", "00:00:00"]),
        ([datetime.timedelta(seconds=90), datetime.timedelta(milliseconds=1)], ["90", "0.001"]),
        (np.array(["2024-01-31T12:34:56.5", "NaT"], "datetime64[ns]"), ["2024-01-31 12:34:56.5", ""]),
        ([np.datetime64("2024-01-31"), np.datetime64("NaT")], ["2024-01-31", ""]),
        ([Decimal("7"), Decimal("NaN"), Decimal("-0.25")], ["7", "", "-0.25"]),
        ([b"a", "b", "", None], ["a", "b", "", ""]),
        (np.array([1, "x", 2.5, True, None, DAY, Decimal("3"), LARGE], object),
         ["1", "x", "2.5", "true", "", "2024-01-31", "3", "9223372036854775813"]),
    ],
)  # fmt: skip
def test_every_value_has_one_word(value, expected):
    column = wanted_as(column_of(value), TEXT, False, ",")
    assert [word.decode() for word in column.words()] == expected
    there = [1] * len(expected) if column.present is None else column.present.tolist()
    assert there == [int(word != "") for word in expected], "nothing is missing, not an empty text"


def test_unsigned_numbers_as_numbers():
    column = column_of(np.array([LARGE, 7], np.uint64))
    assert wanted_as(column, FLOAT32, False, "").values.tolist() == [float(2**63), 7]
    assert wanted_as(column, FLOAT64, False, "").values.tolist() == [float(LARGE), 7]
    assert wanted_as(column_of(np.array([3, 4], np.uint64)), INT64, False, "").values.tolist() == [3, 4]
    for large in (column, column_of([1, LARGE]), column_of(["1", str(LARGE)]), column_of([[1], [LARGE]])):
        with pytest.raises(ValueError, match="9223372036854775813 does not fit into 64 bits with a sign"):
            wanted_as(large, INT64, large.lists is not None, ",")


def test_numbers_out_of_texts():
    assert wanted_as(column_of(["True", "false"]), FLOAT32, False, "").values.tolist() == [1, 0]
    column = wanted_as(column_of(["1.5", "", "NaN", r"\N", "n/a", "-inf", "2e3"]), FLOAT64, False, "")
    assert column.values[[0, 6]].tolist() == [1.5, 2000] and column.present.tolist() == [1, 0, 0, 0, 0, 0, 1]
    whole = wanted_as(column_of(["9007199254740993", "4.0"]), INT64, False, "")
    assert whole.values.tolist() == [2**53 + 1, 4]
    for wrong in ("x", "1_000", "0x10", "1,5", "yes"):
        with pytest.raises(ValueError, match="it has text, but floats are wanted: .* is not a number") as raised:
            wanted_as(column_of(["1", wrong]), FLOAT32, False, "")
        assert raised.value.row == 1
    with pytest.raises(ValueError, match="1e400 is too large for a float") as raised:
        wanted_as(column_of(["1e400"]), FLOAT64, False, "")
    for large in (np.array([1, 1e39]), ["1", "1e39"]):
        with pytest.raises(ValueError, match=r"1e\+39 is too large for a float of 32 bits") as raised:
            wanted_as(column_of(large), FLOAT32, False, "")
        assert raised.value.row == 1 and wanted_as(column_of(large), FLOAT64, False, "").values[1] == 1e39


def test_texts_that_are_lists():
    column = column_of(["[3, 17]", "['a', 'b, c']", '["x"]', "[]", "", "7", "a  b", "(1, 2)", "[u, v]", "[1 2 3]"])
    column = wanted_as(column, TEXT, True, " ")
    assert b" ".join(column.words()) == b"3 17 a b, c x 7 a b 1 2 u v 1 2 3"
    assert column.lists.tolist() == [0, 2, 4, 5, 5, 5, 6, 8, 10, 12, 15]
    assert wanted_as(column_of(["[9223372036854775813, 1.50]"]), TEXT, True, ";").words()[0] == b"9223372036854775813"
    numpy = ["array([3, 17], dtype=int64)", "[np.int64(3), np.int64(17)]"]
    for text in [*numpy, "List(3, 17)", "c('3', '17')", "[b'3', u'17']"]:
        assert wanted_as(column_of([text]), TEXT, True, ",").words() == [b"3", b"17"], text
    for text in ("()", "set()", "array([])"):
        assert wanted_as(column_of([text, "a"]), TEXT, True, ",").words() == [b"a"], text
    weighted = wanted_as(column_of(['{"a": 0.5, "b": 2}', "c:1"]), TEXT, True, ";", ":")
    assert weighted.words() == [b"a", b"b", b"c"] and weighted.weights.tolist() == [0.5, 2, 1]
    for wrong, sentence in [("[1, 2", "does not end like a list"), ("[[1], [2]]", "a list or an object in its list"),
                            ("[1, None]", "a value missing in the list"), ("a;;b", "a value missing")]:  # fmt: skip
        with pytest.raises(ValueError, match=sentence) as raised:
            wanted_as(column_of(["a", wrong]), TEXT, True, ";")
        assert raised.value.row == 1


def test_values_that_are_none_of_a_column():
    for value, sentence in [
        ([1, object()], "a value of type object cannot be in a column"),
        ([[[1]]], "lists of lists"),
        (np.zeros((1, 2, 3)), "with 3 dimensions is not a column"),
        ([1 + 2j], "of type complex"),
        ([[1], 2], "it has lists, but here a value of type int"),
        ([{1: 1e300}], "is not a finite number of 32 bits"),
    ]:
        with pytest.raises((TypeError, ValueError), match=sentence):
            column_of(value)


def blocks(data):
    (block,) = blocks_of(data)
    return block


def test_arrow_types_have_the_same_words():
    pa = pytest.importorskip("pyarrow")
    for array, expected in [
        (pa.array([LARGE, None], pa.uint64()), ["9223372036854775813", ""]),
        (pa.array([0.1, None], pa.float32()), ["0.10000000149011612", ""]),
        (pa.array([Decimal("12.5"), None], pa.decimal128(9, 1)), ["12.5", ""]),
        (pa.array([Decimal("-12345678901234567890123456789.5")], pa.decimal256(60, 1)),
         ["-12345678901234567890123456789.5"]),
        (pa.array([None, None], pa.null()), ["", ""]),
        (pa.array([True, None]), ["true", ""]),
        (pa.array([DAY, None]), ["2024-01-31", ""]),
        (pa.array([NOON]), ["2024-01-31 12:34:56.5"]),
        (pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("ms", "Asia/Tokyo")), ["2024-01-31 12:34:56.5"]),
        (pa.array([NOON.time()], pa.time64("us")), ["12:34:56.5"]),
        (pa.array([datetime.time(1, 2, 3)], pa.time32("s")), ["01:02:03"]),
        (pa.array([b"ab"], pa.binary(2)), ["ab"]),
        (pa.array(["a", None], pa.large_string()), ["a", ""]),
        (pa.array(["a text of more than twelve", None], pa.string_view()), ["a text of more than twelve", ""]),
        (pa.array([b"b"], pa.binary_view()), ["b"]),
        (pa.array([LARGE, None, 1], pa.uint64()).dictionary_encode(), ["9223372036854775813", "", "1"]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None])), ["a", ""]),
        (pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", "b"])), ["a", "a", "b"]),
        (pa.RunEndEncodedArray.from_arrays([2, 3, 5], pa.array([1, None, 2])).slice(1, 3), ["1", "", "2"]),
    ]:  # fmt: skip
        column = blocks(pa.table({"x": array}))["x"]
        got = wanted_as(column, TEXT, False, ",")
        assert [word.decode() for word in got.words()] == expected, array.type
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int64()), pa.list_view(pa.int64()), pa.list_(pa.uint8())):
        column = wanted_as(
            blocks(pa.table({"x": pa.array([[1, 2], None, [], [3]], kind).slice(0)}))["x"], TEXT, True, ""
        )
        assert column.words() == [b"1", b"2", b"3"] and column.lists.tolist() == [0, 2, 2, 2, 3], kind
    hidden = pa.ListArray.from_arrays([0, 2, 4], [1, 2, 3, 4], mask=pa.array([True, False]))
    column = wanted_as(blocks(pa.table({"x": hidden}))["x"], TEXT, True, "")
    assert column.words() == [b"3", b"4"] and column.lists.tolist() == [0, 0, 2], "what a null hides is not a value"
    out_of_order = pa.ListViewArray.from_arrays([2, 0], [1, 2], [5, 6, 7])
    column = wanted_as(blocks(pa.table({"x": out_of_order}))["x"], TEXT, True, "")
    assert column.words() == [b"7", b"5", b"6"]
    pd = pytest.importorskip("pandas")
    period = blocks(pd.DataFrame({"x": pd.period_range("2024-01", periods=2)}))["x"]
    with pytest.raises(ValueError, match='extension type "pandas.period"'):
        wanted_as(period, TEXT, False, "")
    struct = blocks(pa.table({"x": pa.array([{"a": 1}])}))["x"]
    with pytest.raises(ValueError, match='Arrow\'s type "\\+s" .struct'):
        wanted_as(struct, TEXT, False, "")


def test_polars_types_have_the_same_words():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({
        "id": pl.Series([LARGE, None], dtype=pl.UInt64),
        "enum": pl.Series(["a", None], dtype=pl.Enum(["b", "a"])),
        "category": pl.Series(["a", None], dtype=pl.Categorical),
        "price": pl.Series([Decimal("12.5"), None], dtype=pl.Decimal(10, 1)),
        "when": [NOON, None],
        "day": [DAY, None],
        "nothing": [None, None],
        "seen": [[1, 2], []],
        "text": ["x", None],
    })  # fmt: skip
    block = blocks(frame)
    assert wanted_as(block.pop("seen"), TEXT, True, "").lists.tolist() == [0, 2, 2]
    got = {name: wanted_as(column, TEXT, False, "").words() for name, column in block.items()}
    assert got == {
        "id": [b"9223372036854775813", b""], "enum": [b"a", b""], "category": [b"a", b""], "price": [b"12.5", b""],
        "when": [b"2024-01-31 12:34:56.5", b""], "day": [b"2024-01-31", b""], "nothing": [b"", b""],
        "text": [b"x", b""],
    }  # fmt: skip

    mixed = blocks(pl.DataFrame({"a": pl.Series([1, "x", None], dtype=pl.Object), "b": [1, 2, 3]}))
    assert wanted_as(mixed["a"], TEXT, False, "").words() == [b"1", b"x", b""]
    with pytest.raises(TypeError, match="LazyFrame is not data.*collect"):
        blocks(frame.lazy())


def test_frames_of_pandas_that_arrow_does_not_take():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"mixed": np.array([1, "x", None], object), "id": np.array([LARGE, 1, 2], np.uint64)})
    block = blocks(frame)
    assert wanted_as(block["mixed"], TEXT, False, "").words() == [b"1", b"x", b""]
    assert wanted_as(block["id"], TEXT, False, "").words() == [b"9223372036854775813", b"1", b"2"]
    stamps = pd.Series([pd.Timestamp("2024-01-31 12:00:00.000000001"), pd.NaT], dtype=object)
    assert words(stamps) == [b"2024-01-31 12:00:00.000000001", b""]
    assert words(pd.Series([LARGE, None], dtype="UInt64")) == [b"9223372036854775813", b""]
    assert words(pd.Series([0.1, None], dtype="Float32")) == [b"0.10000000149011612", b""]
    twice = pd.DataFrame(np.ones((2, 2)), columns=["a", "a"])
    with pytest.raises(ValueError, match="several columns"):
        column = blocks(twice)["a"]
        wanted_as(column, TEXT, False, "")
