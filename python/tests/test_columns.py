"""Columns of a program's data, as the library is handed them: floats that are ids, what is missing."""

import numpy as np
import pytest

from tessera._columns import FLOAT32, INT64, TEXT, column_of, wanted_as

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
    for wrong in (0.5, 1e300, float("inf")):
        with pytest.raises(ValueError, match="floats that are no whole numbers"):
            wanted_as(column_of(np.array([1.0, wrong])), INT64, False, ",")


def test_nothing_among_texts_and_lists():
    assert words(np.array(["a", NAN, None], object)) == [b"a", b"", b""]
    column = wanted_as(column_of([[1], NAN, None, [2, 3]]), INT64, True, ",")
    assert column.lists.tolist() == [0, 1, 1, 1, 3] and column.values.tolist() == [1, 2, 3]
    for wrong in ([[1, None]], [["a", NAN]], np.array([[1.0, NAN]])):
        with pytest.raises(ValueError, match="a list has nothing, or NaN"):
            column_of(wrong)


def test_times_are_numbers_of_their_unit():
    when = np.array(["2026-03-01", "NaT", "1970-01-02"], "datetime64[s]")
    column = column_of(when)
    assert column.values.tolist() == [1772323200, 0, 86400] and column.present.tolist() == [1, 0, 1]
    assert column_of(when.astype("datetime64[ms]")).values.tolist() == [1772323200000, 0, 86400000]
    assert column_of(np.array([90], "timedelta64[m]")).values.tolist() == [90]
    assert words(when) == [b"1772323200", b"", b"86400"]


def test_columns_of_pandas():
    pd = pytest.importorskip("pandas")
    for kind in ("object", "string", "category"):
        assert words(pd.Series(["a", None, "b"], dtype=kind)) == [b"a", b"", b"b"]
    large = 2**53 + 1
    assert words(pd.Series([large, None], dtype="Int64")) == [str(large).encode(), b""]
    assert words(pd.Series([True, None], dtype="boolean")) == [b"1", b""]
    assert words(pd.Series([5, None, 6], dtype="category")) == [b"5", b"", b"6"]
    times = pd.to_datetime(pd.Series(["2026-03-01", None])).dt.tz_localize("Asia/Tokyo")
    column = column_of(times.astype("M8[s, UTC]"))
    assert column.values.tolist() == [1772323200 - 9 * 3600, 0] and column.present.tolist() == [1, 0]
