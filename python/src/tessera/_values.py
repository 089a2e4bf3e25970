"""Converts a program's values to the library's form: floats, int64 or text, with one value or a list for each row. The
values come as NumPy arrays and lists."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass, replace
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import numpy as np

TEXT, FLOAT32, INT64, FLOAT64 = 0, 1, 2, 3
NOTHING_INSIDE = "a list has nothing, or NaN, for one of its values, which is not taken: leave it out"
LARGEST = float(np.finfo(np.float32).max)


class RefusedValue(ValueError):
    """Raised if a value is refused. row: its row in the column, from 0; None if the error is not about a single row."""

    def __init__(self, sentence: str, row: Optional[int] = None) -> None:
        super().__init__(sentence)
        self.row = row


@dataclass
class Column:
    """Values of some rows, of the types that they came in (float32, float64, int64, uint64) until ``wanted_as``.

    unit: for int64 that are not plain numbers: "bool", "day", "s", "ms", "us", "ns", and "time:s" and so on for times
    of a day. texts: for text, the start of each value in the bytes of ``values``. lists: the start of each row's
    values. present: 0 for a row without a value. weights: for lists, float32, one for each value. refused: the reason
    why the column cannot be used, which becomes an error if a job needs it."""

    type: int
    values: np.ndarray
    texts: Optional[np.ndarray] = None
    lists: Optional[np.ndarray] = None
    present: Optional[np.ndarray] = None
    weights: Optional[np.ndarray] = None
    refused: Optional[Exception] = None
    unit: Optional[str] = None

    def count(self) -> int:
        """Returns the number of values."""
        return len(self.values) if self.texts is None else len(self.texts) - 1

    def rows(self) -> int:
        """Returns the number of rows: of lists if there are any, otherwise of values."""
        return self.count() if self.lists is None else len(self.lists) - 1

    def row_of(self, value: int) -> int:
        """Returns the row of the value with this index."""
        return value if self.lists is None else int(np.searchsorted(self.lists, value, "right")) - 1

    def bytes(self) -> int:
        """Returns the bytes of all arrays."""
        return sum(a.nbytes for a in (self.values, self.texts, self.lists, self.present, self.weights) if a is not None)

    def words(self) -> List[bytes]:
        """Returns the texts as a list."""
        raw, at = self.values.tobytes(), self.texts.tolist()
        return [raw[begin:end] for begin, end in zip(at, at[1:])]


def offsets(lengths: Sequence[int]) -> np.ndarray:
    """Returns 0 and the running sums of the lengths: int64 ``[lengths + 1]``."""
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def text_column(words: Sequence[bytes], **more: Any) -> Column:
    """Makes a column of texts."""
    return Column(TEXT, np.frombuffer(b"".join(words), np.uint8), offsets([len(w) for w in words]), **more)


def refused_column(error: Exception, rows: int, lists: bool = False) -> Column:
    """Makes a column whose values could not be read; using it raises ``error``. lists: True if its rows are lists."""
    texts, ends = np.zeros(1 if lists else rows + 1, np.int64), np.zeros(rows + 1, np.int64) if lists else None
    return Column(TEXT, np.zeros(0, np.uint8), texts, ends, refused=error)


def none_column(rows: int) -> Column:
    """Returns a column in which no row has a value."""
    return Column(TEXT, np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64), present=np.zeros(rows, np.uint8))


def taken(column: Column, index: np.ndarray) -> Column:
    """Returns a column with the values at these positions of a column without lists."""
    present = None if column.present is None else column.present[index]
    if column.texts is None:
        return replace(column, values=column.values[index], present=present)
    begins, lengths = column.texts[:-1][index], np.diff(column.texts)[index]
    at = offsets(lengths)
    places = np.arange(at[-1]) - np.repeat(at[:-1], lengths) + np.repeat(begins, lengths)
    return replace(column, values=column.values[places], texts=at, present=present)


# ---- columns of arrays and lists


def column_of(value: Any) -> Column:
    """Makes a column from an array or a list. Items are numbers, truth values, decimals, dates and times, texts, lists
    of these, and mappings from these to weights or lists of pairs (value, weight); None is a row without a value. If
    rows have values of different types, each value becomes the word of its own type. Masked values are missing."""
    if isinstance(value, np.ma.MaskedArray):
        return _of_masked(value)
    if not isinstance(value, (np.ndarray, list, tuple)):
        kind = getattr(value, "dtype", None)
        if hasattr(kind, "tz") and hasattr(kind, "unit"):  # pandas' times with a zone, converted to UTC
            value = np.asarray(value, f"datetime64[{kind.unit}]")
        else:  # this includes pandas' whole numbers with NA, which must not become floats
            value = np.asarray(value, object if hasattr(kind, "na_value") else None)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiubmMOUS" or value.ndim not in (1, 2):
            raise TypeError(f"an array of {value.dtype} with {value.ndim} dimensions is not a column")
        if value.ndim == 2:
            return _of_rows(value)
        if value.dtype.kind in "fiub":
            return of_numbers(value)
        if value.dtype.kind in "mM":
            return _of_times(value)
        value = value.tolist()
    kinds = set(map(type, value))
    if any(issubclass(kind, (list, tuple, np.ndarray, Mapping)) and kind.__name__ not in _NOTHING for kind in kinds):
        rows = value if kinds == {list} else [_list_of(row, i) for i, row in enumerate(value)]
        weighted = any(type(row[0]) is tuple for row in rows if len(row))
        return _of_weighted(rows) if weighted else _of_lists(rows)
    maybe = {kind for kind in kinds if issubclass(kind, _MAYBE_NOTHING) or kind.__name__ in _NOTHING}
    if not maybe:
        return _of_objects(list(value))
    absent = np.fromiter((type(one) in maybe and is_nothing(one) for one in value), bool, len(value))
    if not absent.any():
        return _of_objects(list(value))
    column = _of_objects([one for one, none in zip(value, absent.tolist()) if not none])
    where = np.zeros(len(value), np.int64)
    where[~absent] = np.arange(column.count())
    if column.count() == 0:
        return none_column(len(value))
    present = ~absent
    if column.texts is not None:  # a missing value has an empty text
        lengths = np.zeros(len(value), np.int64)
        lengths[present] = np.diff(column.texts)
        out = replace(column, texts=offsets(lengths))
    else:
        out = taken(replace(column, present=None), where)
    given = np.ones(column.count(), np.uint8) if column.present is None else column.present
    return replace(out, present=np.where(present, given[where], 0).astype(np.uint8))


def _list_of(row: Any, i: int) -> Any:
    if isinstance(row, Mapping):
        return list(row.items())
    if isinstance(row, (list, tuple)) or (isinstance(row, np.ndarray) and row.ndim == 1):
        return row
    if (not isinstance(row, np.ndarray) or row is np.ma.masked) and is_nothing(row):
        return ()
    raise RefusedValue(f"it has lists, but here a value of type {type(row).__name__}", i)


_NOTHING = ("NoneType", "NAType", "NaTType", "MaskedConstant")
_MAYBE_NOTHING = (float, np.floating, decimal.Decimal, np.datetime64, np.timedelta64)


def is_nothing(value: Any) -> bool:
    """True for None, NaN, and the equivalents of pandas and NumPy."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, decimal.Decimal):
        return not value.is_finite()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return type(value).__name__ in _NOTHING


def _of_masked(array: Any) -> Column:
    if array.ndim != 1 or array.dtype.kind not in "fiubmM":  # tolist() has None for each masked value
        return _of_rows(array) if array.ndim == 2 else column_of(array.tolist())
    column, there = column_of(array.data), ~np.ma.getmaskarray(array)
    if there.all():
        return column
    given = there if column.present is None else there & column.present.astype(bool)
    return replace(column, present=given.astype(np.uint8))


def _of_rows(array: np.ndarray) -> Column:
    """Makes a column of lists from a matrix: each row is a list."""
    column = column_of((array if isinstance(array, np.ma.MaskedArray) else np.ascontiguousarray(array)).reshape(-1))
    width = array.shape[1]
    lists = np.arange(len(array) + 1, dtype=np.int64) * width
    return as_lists(column, lists)


def as_lists(column: Column, lists: np.ndarray) -> Column:
    """Returns the column with its values grouped to lists; ``lists[i]`` is the index of row i's first value. A missing
    value inside a list is refused."""
    if column.present is not None and not column.present.all():
        first = int(np.argmin(column.present))
        raise RefusedValue(NOTHING_INSIDE, int(np.searchsorted(lists, first, "right")) - 1)
    return replace(column, lists=lists, present=None)


def _of_lists(rows: Sequence[Any]) -> Column:
    flat = [value for row in rows for value in row]
    try:
        column = column_of(flat)
    except RefusedValue as error:
        raise TypeError(f"it has lists of lists, which are not taken ({error})") from None
    if column.lists is not None:
        raise TypeError("it has lists of lists, which are not taken")
    return as_lists(column, offsets([len(row) for row in rows]))


def _of_weighted(rows: Sequence[Any]) -> Column:
    """Makes a column from lists of pairs (value, weight)."""
    pairs = [pair for row in rows for pair in row]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError("a list with weights has only pairs of a value and its weight")
    return with_weights(_of_lists([[value for value, _ in row] for row in rows]), [weight for _, weight in pairs])


def with_weights(column: Column, weights: Any) -> Column:
    """Gives the column a weight for each value. Weights must be finite."""
    try:
        column.weights = np.ascontiguousarray(weights, np.float64)
    except (TypeError, ValueError):
        raise TypeError("a weight is not a number") from None
    wrong = ~(np.abs(column.weights) <= LARGEST)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise RefusedValue(f"a weight is {column.weights[first]}, and is not a finite number of 32 bits",
                           column.row_of(first))  # fmt: skip
    column.weights = column.weights.astype(np.float32)
    return column


def of_numbers(array: np.ndarray) -> Column:
    """Makes a column from a flat array. NaN and infinity are missing values."""
    if array.dtype.kind == "b":
        return Column(INT64, array.astype(np.int64), unit="bool")
    if array.dtype.kind == "u" and array.dtype.itemsize == 8:
        return Column(INT64, np.ascontiguousarray(array, np.uint64))
    if array.dtype.kind != "f":
        return Column(INT64, np.ascontiguousarray(array, np.int64))
    narrow = array.dtype.itemsize < 8
    values = np.ascontiguousarray(array, np.float32 if narrow else np.float64)
    there = np.isfinite(values)
    present = None if there.all() else there.astype(np.uint8)
    return Column(FLOAT32 if narrow else FLOAT64, values, present=present)


def of_seconds(ticks: np.ndarray, none: np.ndarray, per_second: int, seconds: int = 1) -> Column:
    """Makes a column of seconds from durations. ``per_second`` ticks are ``seconds`` seconds."""
    return of_numbers(np.where(none, np.nan, ticks.astype(np.float64) * seconds / per_second))


def _ticks(unit: str, count: int) -> Tuple[int, int]:
    """Returns (n, s) such that n ticks of a unit of NumPy's durations are s seconds."""
    parts = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "ps": 10**12, "fs": 10**15, "as": 10**18}
    if unit in parts:
        return parts[unit], count
    long = {"m": 60, "h": 3600, "D": 86400, "W": 7 * 86400}
    if unit not in long:
        raise TypeError(f"a timedelta64[{unit}] has no length in seconds: convert it to days or seconds")
    return 1, count * long[unit]


def _of_times(array: np.ndarray) -> Column:
    kind, (unit, count) = array.dtype.kind, np.datetime_data(array.dtype)
    if kind == "M" and (unit not in ("D", "s", "ms", "us", "ns") or count != 1):
        unit = "D" if unit in ("Y", "M", "W") else "s" if unit in ("h", "m", "s") else "ns"
        array = array.astype(f"M8[{unit}]")
    none = np.isnat(array)
    if kind == "m":
        return of_seconds(array.astype(np.int64), none, *_ticks(unit, count))
    numbers = np.where(none, 0, array.astype(np.int64))
    unit = "day" if unit == "D" else unit
    return Column(INT64, numbers, present=(~none).astype(np.uint8) if none.any() else None, unit=unit)


_EPOCH, _US, _UTC = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1), datetime.timezone.utc


def _kind_of(value: Any) -> str:
    for kind, name in (
        ((str, bytes, bytearray), "text"), ((bool, np.bool_), "bool"), ((int, np.integer), "int"),
        ((np.datetime64, np.timedelta64), "numpy"), ((float, np.floating), "float"),
        (decimal.Decimal, "decimal"), (datetime.datetime, "datetime"), (datetime.date, "date"),
        (datetime.time, "time"), (datetime.timedelta, "timedelta"),
    ):  # fmt: skip
        if isinstance(value, kind):
            return f"{type(value).__name__} of {value.dtype}" if name == "numpy" else name
    raise TypeError(
        f"a value of type {type(value).__name__} cannot be in a column: use numbers, texts, dates, times, "
        "and lists of them"
    )


def _of_objects(values: List[Any]) -> Column:
    """Makes a column from values, none of which is missing."""
    kinds = {kind: _kind_of(next(v for v in values if type(v) is kind)) for kind in dict.fromkeys(map(type, values))}
    if any(kind.startswith(("datetime64", "timedelta64")) for kind in kinds.values()):
        groups = [_kind_of(value) for value in values]  # values of one type may have different units
    elif len(set(kinds.values())) == 1:
        return _of_kind(next(iter(kinds.values())), values)
    elif set(kinds.values()) == {"int", "float"} and all(abs(v) <= 2**53 for v in values if kinds[type(v)] == "int"):
        return of_numbers(np.array([float(v) for v in values]))
    else:
        groups = [kinds[type(value)] for value in values]
    if len(set(groups)) == 1:
        return _of_kind(groups[0], values)
    from ._wanted import with_words  # imported here, because that module imports this one

    words, there = [b""] * len(values), np.ones(len(values), np.uint8)
    for group in dict.fromkeys(groups):
        where = [i for i, one in enumerate(groups) if one == group]
        column = with_words(_of_kind(group, [values[i] for i in where]))
        for k, (i, word) in enumerate(zip(where, column.words())):
            words[i] = word
            there[i] = 1 if column.present is None else column.present[k]
    return text_column(words, present=None if there.all() else there)


def _of_kind(kind: str, values: List[Any]) -> Column:
    if kind == "text":
        return text_column([v.encode() if isinstance(v, str) else bytes(v) for v in values])
    if kind == "bool":
        return of_numbers(np.array(values, bool))
    if kind == "int":
        least, most = min(values), max(values)
        if least < -(2**63) or most >= 2**64 or (least < 0 and most >= 2**63):
            return text_column([str(int(v)).encode() for v in values])
        return of_numbers(np.array(values, np.uint64 if most >= 2**63 else np.int64))
    if kind == "float":
        return of_numbers(np.array([float(v) for v in values]))
    if kind == "decimal":
        return text_column([format(v, "f").encode() for v in values])
    if kind == "date":
        return Column(INT64, np.array([v.toordinal() - _EPOCH.toordinal() for v in values], np.int64), unit="day")
    if kind == "time":
        us = [((v.hour * 60 + v.minute) * 60 + v.second) * 10**6 + v.microsecond for v in values]
        return Column(INT64, np.array(us, np.int64), unit="time:us")
    if kind not in ("datetime", "timedelta"):  # these are NumPy's times
        return _of_times(np.array(values))
    spans = values if kind == "timedelta" else [
        (v.astimezone(_UTC).replace(tzinfo=None) if v.tzinfo else v) - _EPOCH for v in values
    ]  # fmt: skip
    # Only pandas' values have nanoseconds.
    ns = [getattr(v, "nanosecond" if kind == "datetime" else "nanoseconds", 0) for v in values]
    us = [datetime.timedelta(s.days, s.seconds, s.microseconds) // _US for s in spans]
    per_us, unit = (1000, "ns") if any(ns) else (1, "us")
    ticks = np.array([per_us * u + (n if per_us > 1 else 0) for u, n in zip(us, ns)], np.int64)
    if kind == "timedelta":
        return of_seconds(ticks, np.zeros(len(ticks), bool), per_us * 10**6)
    return Column(INT64, ticks, unit=unit)
