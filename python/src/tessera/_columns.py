"""Columns as readers hand them to the library: float32, int64 or text, one value a row or a list of them; made from
NumPy arrays, lists, and Arrow's C data interface."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import numpy as np

TEXT, FLOAT32, INT64 = 0, 1, 2
_NAMES = {TEXT: "text", FLOAT32: "floats", INT64: "whole numbers"}
_NOTHING_INSIDE = "a list has nothing, or NaN, for one of its values, which is not taken: leave it out"


@dataclass
class Column:
    """Values of some rows; floats are float32 or float64, as they came, until ``wanted_as``. texts: of text, where each
    of ``values``' bytes begin. lists: where each row's values begin. present: 0 where a row has no value. weights: of
    lists, float32, one beside each value. refused: why it is no column, which is an error where it is wanted."""

    type: int
    values: np.ndarray
    texts: Optional[np.ndarray] = None
    lists: Optional[np.ndarray] = None
    present: Optional[np.ndarray] = None
    weights: Optional[np.ndarray] = None
    refused: Optional[str] = None

    def count(self) -> int:
        return len(self.values) if self.texts is None else len(self.texts) - 1

    def rows(self) -> int:
        return self.count() if self.lists is None else len(self.lists) - 1

    def bytes(self) -> int:
        return sum(a.nbytes for a in (self.values, self.texts, self.lists, self.present, self.weights) if a is not None)

    def words(self) -> List[bytes]:
        raw, at = self.values.tobytes(), self.texts.tolist()
        return [raw[begin:end] for begin, end in zip(at, at[1:])]


def _offsets(lengths: Sequence[int]) -> np.ndarray:
    out = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=out[1:])
    return out


def text_column(words: Sequence[bytes], **more: Any) -> Column:
    return Column(TEXT, np.frombuffer(b"".join(words), np.uint8), _offsets([len(w) for w in words]), **more)


def _refused_column(error: Exception, rows: int) -> Column:
    return Column(TEXT, np.zeros(0, np.uint8), np.zeros(rows + 1, np.int64), refused=str(error))


def column_of(value: Any) -> Column:
    """Of an array, or a list: of numbers, texts, lists of either, mappings from either to its weight or lists of such
    pairs; None where a row has nothing. Times of an array are numbers of its unit."""
    if not isinstance(value, (np.ndarray, list, tuple)):
        kind = getattr(value, "dtype", None)
        if hasattr(kind, "tz") and hasattr(kind, "unit"):  # pandas' times of a zone, in UTC
            value = np.asarray(value, f"datetime64[{kind.unit}]")
        else:  # whole numbers with pandas' NA, too, without a way over floats
            value = np.asarray(value, object if hasattr(kind, "na_value") else None)
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "fiub" and value.ndim in (1, 2):
            return _of_numbers(value)
        if value.dtype.kind in "mM" and value.ndim == 1:
            none = np.isnat(value)
            numbers = np.where(none, 0, value.astype(np.int64))
            return Column(INT64, numbers, present=(~none).astype(np.uint8) if none.any() else None)
        if value.dtype.kind not in "OUS" or value.ndim != 1:
            raise TypeError(f"an array of {value.dtype} with {value.ndim} dimensions is no column")
        value = value.tolist()
    if any(isinstance(row, (list, tuple, np.ndarray, Mapping)) for row in value):
        rows = [() if _is_nothing(row) else list(row.items()) if isinstance(row, Mapping) else row for row in value]
        if any(isinstance(one, tuple) for row in rows for one in row[:1]):
            return _of_weighted(rows)
        return _of_lists(rows)
    absent = [_is_nothing(row) for row in value]
    present = None if not any(absent) else np.array([not none for none in absent], np.uint8)
    if all(none or isinstance(row, (str, bytes)) for row, none in zip(value, absent)):
        words = [b"" if none else row.encode() if isinstance(row, str) else row for row, none in zip(value, absent)]
        return text_column(words, present=present)
    column = _of_numbers(np.asarray([0 if none else row for row, none in zip(value, absent)]))
    return Column(column.type, column.values, present=present if present is not None else column.present)


def _is_nothing(value: Any) -> bool:
    """None, NaN, and what pandas has for them."""
    if isinstance(value, float):
        return value != value
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _of_lists(rows: Sequence[Any]) -> Column:
    lists = _offsets([len(row) for row in rows])
    flat = column_of([value for row in rows for value in row])
    if flat.present is not None:
        raise ValueError(_NOTHING_INSIDE)
    return Column(flat.type, flat.values, flat.texts, lists)


def _of_weighted(rows: Sequence[Any]) -> Column:
    """Of lists of pairs: a value and its weight."""
    pairs = [pair for row in rows for pair in row]
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError("a list with weights has pairs alone: a value and its weight")
    column = _of_lists([[value for value, _ in row] for row in rows])
    return _with_weights(column, [weight for _, weight in pairs])


def _with_weights(column: Column, weights: Any) -> Column:
    try:
        column.weights = np.ascontiguousarray(weights, np.float32)
    except (TypeError, ValueError):
        raise TypeError("a weight is no number") from None
    if not np.isfinite(column.weights).all():
        raise ValueError("a weight is no finite number")
    return column


def _of_numbers(array: np.ndarray) -> Column:
    if array.dtype.kind not in "fiub":
        raise TypeError(f"values of {array.dtype} are none of a column: numbers and texts are")
    lists = None
    if array.ndim == 2:
        lists = np.arange(0, array.size + 1, max(1, array.shape[1]), dtype=np.int64)
        if array.shape[1] == 0:
            lists = np.zeros(len(array) + 1, np.int64)
        array = array.reshape(-1)
    if array.dtype.kind != "f":
        return Column(INT64, np.ascontiguousarray(array, np.int64), lists=lists)
    values = np.ascontiguousarray(array, np.float32 if array.dtype.itemsize < 8 else np.float64)
    missing = np.isnan(values)
    if lists is not None and missing.any():
        raise ValueError(_NOTHING_INSIDE)
    return Column(FLOAT32, values, lists=lists, present=(~missing).astype(np.uint8) if missing.any() else None)


def wanted_as(column: Column, type: int, is_list: bool, separator: str, weight_separator: str = "") -> Column:
    """The column as the library wants it; with weights where ``weight_separator`` is given, which stands before them in
    texts. ValueError: it cannot be that."""
    if column.refused is not None:
        raise ValueError(column.refused)
    if column.lists is not None and not is_list:
        raise ValueError("it has lists, and one value a row is wanted")
    if is_list and column.lists is None:
        column = _split(column, separator) if column.type == TEXT else _alone(column)
    if weight_separator and column.weights is None:
        if column.type != TEXT:
            raise ValueError("it has no weights, and weighted lists are wanted: give pairs of a value and its weight")
        column = _weighed(column, weight_separator)
    if column.type == type and column.values.dtype != np.float64:
        return column
    more = dict(lists=column.lists, present=column.present, weights=column.weights)
    if type == TEXT:
        return text_column(_number_texts(column), **more)
    if column.type == TEXT:
        kind = float if type == FLOAT32 else int
        try:
            numbers = [kind(word) if word else 0 for word in column.words()]
        except ValueError as error:
            raise ValueError(f"it has text, and {_NAMES[type]} are wanted ({error})") from None
        return Column(type, np.array(numbers, np.float32 if type == FLOAT32 else np.int64), **more)
    if type == FLOAT32:
        return Column(type, column.values.astype(np.float32), **more)
    floats = column.values if column.present is None else np.where(column.present, column.values, 0)
    if not _are_whole(floats).all():
        raise ValueError("it has floats that are no whole numbers, and whole numbers are wanted")
    return Column(type, floats.astype(np.int64), **more)


def _are_whole(floats: np.ndarray) -> np.ndarray:
    return (np.abs(floats) < 2.0**63) & (floats == np.trunc(floats))


def _number_texts(column: Column) -> List[bytes]:
    """Of numbers. A float that is whole is the text of that whole number, whatever stands beside it: pandas makes
    floats of ids where one is missing."""
    values = column.values.tolist()
    if column.type == FLOAT32:
        values = [int(value) if whole else value for value, whole in zip(values, _are_whole(column.values).tolist())]
    words = [str(value).encode() for value in values]
    return words if column.present is None else [w if has else b"" for w, has in zip(words, column.present.tolist())]


def _seen(column: Column) -> Any:
    return slice(None) if column.present is None else column.present.astype(bool)


def _alone(column: Column) -> Column:
    """Lists of one value, or of none."""
    has = np.ones(column.count(), np.int64) if column.present is None else column.present.astype(np.int64)
    return Column(column.type, column.values[_seen(column)], lists=_offsets(has))


def _split(column: Column, separator: str) -> Column:
    at = separator.encode()
    rows = [word.split(at) if word else [] for word in column.words()]
    out = text_column([part for row in rows for part in row])
    out.lists = _offsets([len(row) for row in rows])
    return out


def _weighed(column: Column, separator: str) -> Column:
    """Lists of texts "17:0.5", as lists of "17" that have weights."""
    parts = [word.decode().rpartition(separator) for word in column.words()]
    lacking = next((value for value, found, value_or_weight in parts if not found), None)
    if lacking is not None:
        raise ValueError(f'a value has no weight behind "{separator}"')
    out = text_column([value.encode() for value, _, _ in parts], lists=column.lists)
    try:
        return _with_weights(out, [float(weight) for _, _, weight in parts])
    except ValueError as error:
        raise ValueError(f'what stands behind "{separator}" is no weight ({error})') from None


# ---- Arrow


class ArrowSchema(c.Structure):
    pass


class ArrowArray(c.Structure):
    pass


class ArrowStream(c.Structure):
    pass


ArrowSchema._fields_ = [
    ("format", c.c_char_p),
    ("name", c.c_char_p),
    ("metadata", c.c_void_p),
    ("flags", c.c_int64),
    ("n_children", c.c_int64),
    ("children", c.POINTER(c.POINTER(ArrowSchema))),
    ("dictionary", c.POINTER(ArrowSchema)),
    ("release", c.CFUNCTYPE(None, c.POINTER(ArrowSchema))),
    ("private_data", c.c_void_p),
]
ArrowArray._fields_ = [
    ("length", c.c_int64),
    ("null_count", c.c_int64),
    ("offset", c.c_int64),
    ("n_buffers", c.c_int64),
    ("n_children", c.c_int64),
    ("buffers", c.POINTER(c.c_void_p)),
    ("children", c.POINTER(c.POINTER(ArrowArray))),
    ("dictionary", c.POINTER(ArrowArray)),
    ("release", c.CFUNCTYPE(None, c.POINTER(ArrowArray))),
    ("private_data", c.c_void_p),
]
ArrowStream._fields_ = [
    ("get_schema", c.CFUNCTYPE(c.c_int, c.POINTER(ArrowStream), c.POINTER(ArrowSchema))),
    ("get_next", c.CFUNCTYPE(c.c_int, c.POINTER(ArrowStream), c.POINTER(ArrowArray))),
    ("get_last_error", c.CFUNCTYPE(c.c_char_p, c.POINTER(ArrowStream))),
    ("release", c.CFUNCTYPE(None, c.POINTER(ArrowStream))),
    ("private_data", c.c_void_p),
]

_INTEGERS = {"c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8"}
_FLOATS = {"e": "f2", "f": "f4", "g": "f8"}
_TIMES = {"tdD": "i4", "tts": "i4", "ttm": "i4", "tdm": "i8", "ttu": "i8", "ttn": "i8"}
_pointer_of = c.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


class _Released:
    """Calls an Arrow struct's release when nobody needs its memory any more."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __del__(self) -> None:
        if self.raw.release:
            self.raw.release(c.byref(self.raw))


def arrow_blocks(capsule: Any) -> Iterator[Dict[str, Column]]:
    """The record batches of what ``__arrow_c_stream__`` gave, as columns that are copied out of them."""
    stream = ArrowStream.from_address(_pointer_of(capsule, b"arrow_array_stream"))

    def check(code: int) -> None:
        if code:
            said = stream.get_last_error(c.byref(stream))
            raise OSError(code, f"the Arrow stream failed: {(said or b'without a reason').decode(errors='replace')}")

    schema = ArrowSchema()
    check(stream.get_schema(c.byref(stream), c.byref(schema)))
    kept = _Released(schema)
    if schema.format != b"+s":
        raise TypeError("the Arrow stream has no columns: it has to be one of record batches")
    while True:
        array = ArrowArray()
        check(stream.get_next(c.byref(stream), c.byref(array)))
        if not array.release:
            del kept, capsule
            return
        owner = _Released(array)
        block = {}
        for i in range(schema.n_children):
            child, values = schema.children[i].contents, array.children[i].contents
            try:
                column = _arrow_column(child, values, array.offset, array.length)
            except (TypeError, ValueError) as error:
                column = _refused_column(error, array.length)
            block[child.name.decode()] = column
        yield block
        del owner, block


def _buffer(array: ArrowArray, i: int, kind: str, first: int, count: int) -> np.ndarray:
    address, size = array.buffers[i], np.dtype(kind).itemsize
    if count == 0 or not address:
        return np.zeros(count, kind)
    return np.frombuffer((c.c_char * (size * count)).from_address(address + size * first), kind)


def _bits(array: ArrowArray, i: int, first: int, count: int) -> np.ndarray:
    raw = _buffer(array, i, "u1", first // 8, (first % 8 + count + 7) // 8)
    return np.unpackbits(raw, bitorder="little")[first % 8 : first % 8 + count]


def _arrow_present(array: ArrowArray, first: int, count: int) -> Optional[np.ndarray]:
    has_bits = array.null_count != 0 and array.n_buffers > 0 and array.buffers[0]
    return _bits(array, 0, first, count).copy() if has_bits else None


def _arrow_column(schema: ArrowSchema, array: ArrowArray, first: int, count: int) -> Column:
    """Rows [first, first + count) of an array, its own offset aside."""
    first += array.offset
    kind = schema.format.decode()
    if kind.startswith(("ts", "tD")) or kind in _TIMES:  # numbers of their unit
        numbers = _buffer(array, 1, _TIMES.get(kind, "i8"), first, count).astype(np.int64)
        return Column(INT64, numbers, present=_arrow_present(array, first, count))
    present = _arrow_present(array, first, count)
    if schema.dictionary:
        return _of_dictionary(schema, array, first, count, present)
    if kind in _INTEGERS:
        return Column(INT64, _buffer(array, 1, _INTEGERS[kind], first, count).astype(np.int64), present=present)
    if kind in _FLOATS:
        column = _of_numbers(_buffer(array, 1, _FLOATS[kind], first, count).copy())
        return Column(FLOAT32, column.values, present=present if present is not None else column.present)
    if kind == "b":
        return Column(INT64, _bits(array, 1, first, count).astype(np.int64), present=present)
    if kind in ("u", "z", "U", "Z"):
        texts = _buffer(array, 1, "i4" if kind in "uz" else "i8", first, count + 1).astype(np.int64)
        raw = _buffer(array, 2, "u1", int(texts[0]), int(texts[-1] - texts[0])).copy()
        return Column(TEXT, raw, texts - texts[0], present=present)
    if kind in ("vu", "vz"):
        return text_column(_viewed(array, first, count), present=present)
    if kind in ("+l", "+L", "+m") or kind.startswith("+w:"):
        if kind.startswith("+w:"):
            width = int(kind[3:])
            lists = np.arange(first, first + count + 1, dtype=np.int64) * width
        else:
            lists = _buffer(array, 1, "i8" if kind == "+L" else "i4", first, count + 1).astype(np.int64)
        items = schema.children[0].contents, array.children[0].contents, int(lists[0]), int(lists[-1] - lists[0])
        if items[0].format == b"+s" and items[0].n_children == 2:
            return _arrow_pairs(*items, lists - lists[0])
        inner = _arrow_column(*items)
        if inner.lists is not None or (inner.present is not None and not inner.present.all()):
            raise TypeError("it has lists of lists, or nothing inside of lists, which is not taken")
        return Column(inner.type, inner.values, inner.texts, lists - lists[0])
    raise TypeError(
        f'it is of Arrow\'s type "{kind}"; numbers, times, texts, lists of them and maps from them to weights are taken'
    )


def _arrow_pairs(schema: ArrowSchema, array: ArrowArray, first: int, count: int, lists: np.ndarray) -> Column:
    """A map, or a list of structs of two: values and their weights."""
    first += array.offset
    pair = [_arrow_column(schema.children[i].contents, array.children[i].contents, first, count) for i in (0, 1)]
    if any(one.lists is not None or (one.present is not None and not one.present.all()) for one in pair):
        raise TypeError("it has lists, or nothing, inside of pairs, which is not taken")
    values, weights = pair
    if weights.type == TEXT:
        raise TypeError("it has pairs whose second is a text, where a weight is a number")
    return _with_weights(Column(values.type, values.values, values.texts, lists), weights.values)


def _viewed(array: ArrowArray, first: int, count: int) -> List[bytes]:
    """Arrow's string views: 4 bytes of length, and 12 of text, or a prefix, a buffer and where the text is there."""
    raw, out = _buffer(array, 1, "u1", 16 * first, 16 * count).tobytes(), []
    for at in range(0, 16 * count, 16):
        length = int.from_bytes(raw[at : at + 4], "little")
        if length <= 12:
            out.append(raw[at + 4 : at + 4 + length])
        else:
            which, where = (int.from_bytes(raw[at + k : at + k + 4], "little") for k in (8, 12))
            out.append(c.string_at(array.buffers[2 + which] + where, length))
    return out


def _of_dictionary(
    schema: ArrowSchema, array: ArrowArray, first: int, count: int, present: Optional[np.ndarray]
) -> Column:
    entries = array.dictionary.contents
    words = _arrow_column(schema.dictionary.contents, entries, 0, entries.length)
    index = _buffer(array, 1, _INTEGERS[schema.format.decode()], first, count).astype(np.int64)
    if present is not None:
        index[present == 0] = 0
    if words.lists is not None:
        raise TypeError("it is a dictionary of lists, which is not taken")
    if words.type != TEXT:
        values = words.values[index] if len(words.values) else np.zeros(count, words.values.dtype)
        return Column(words.type, values, present=present)
    all_words = words.words() or [b""]
    return text_column([all_words[i] for i in index.tolist()], present=present)


def _given_column(name: str, value: Any) -> Column:
    """What is no column is refused where it is wanted: a job need not use all that it is given."""
    try:
        return column_of(value)
    except (TypeError, ValueError) as error:
        try:
            return _refused_column(error, len(value))
        except TypeError:  # it has no rows
            raise TypeError(f'column "{name}": {error}') from None


def blocks_of(data: Any) -> Iterator[Dict[str, Column]]:
    """What ``data`` has, block by block: an Arrow stream, one batch (a mapping of columns), or an iterable of them."""
    stream = None
    if hasattr(data, "__arrow_c_stream__"):
        try:
            stream = data.__arrow_c_stream__()
        except ImportError:  # pandas asks pyarrow for it
            if not hasattr(data, "items"):
                raise
            data = dict(data.items())
    if stream is not None:
        yield from arrow_blocks(stream)
    elif isinstance(data, Mapping):
        block = {str(name): _given_column(str(name), value) for name, value in data.items()}
        sizes = {name: column.rows() for name, column in block.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the columns of a batch have different numbers of rows: {sizes}")
        yield block
    elif isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise TypeError(
            f"an object of type {type(data).__name__} is no data: what has __arrow_c_stream__, a mapping of columns, "
            "and an iterable of these are"
        )
    else:
        for batch in data:
            yield from blocks_of(batch)
