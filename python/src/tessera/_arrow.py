"""Reads columns through Arrow's C data interface, without pyarrow."""

from __future__ import annotations

import ctypes as c
import decimal
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np

from ._values import (
    INT64,
    TEXT,
    Column,
    RefusedValue,
    as_lists,
    none_column,
    of_numbers,
    of_seconds,
    offsets,
    refused_column,
    taken,
    text_column,
    with_weights,
)


class ArrowSchema(c.Structure):
    """Arrow's C struct for a type."""


class ArrowArray(c.Structure):
    """Arrow's C struct for values."""


class ArrowStream(c.Structure):
    """Arrow's C struct for a stream of batches."""


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
_TIMES = {  # Arrow's format -> the stored type, and the unit
    "tdD": ("i4", "day"), "tdm": ("i8", "ms"), "tts": ("i4", "time:s"), "ttm": ("i4", "time:ms"),
    "ttu": ("i8", "time:us"), "ttn": ("i8", "time:ns"), "tss": ("i8", "s"), "tsm": ("i8", "ms"), "tsu": ("i8", "us"),
    "tsn": ("i8", "ns"),
}  # fmt: skip
_DURATIONS = {"tDs": 1, "tDm": 10**3, "tDu": 10**6, "tDn": 10**9}  # Arrow's format -> ticks per second
_LISTS = (b"+l", b"+L", b"+m", b"+vl", b"+vL", b"+w:")  # types of lists
_NAMES = [("+s", "struct"), ("+u", "union"), ("ti", "interval")]  # names of types that are refused
_EXTENSIONS = ("", "arrow.json")  # extension types whose stored values can be used unchanged
_TAKEN = "numbers, decimals, times, texts, dictionaries, lists of them and maps from them to weights are taken"
_pointer_of = c.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


class _Released:
    """Calls an Arrow struct's release when nobody needs its memory."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __del__(self) -> None:
        if self.raw.release:
            self.raw.release(c.byref(self.raw))


def arrow_blocks(capsule: Any) -> Iterator[Dict[str, Column]]:
    """Yields the record batches of a stream from ``__arrow_c_stream__``, copied into columns."""
    stream = ArrowStream.from_address(_pointer_of(capsule, b"arrow_array_stream"))

    def check(code: int) -> None:
        if code:
            said = stream.get_last_error(c.byref(stream))
            raise OSError(code, f"the Arrow stream failed: {(said or b'without a reason').decode(errors='replace')}")

    schema = ArrowSchema()
    check(stream.get_schema(c.byref(stream), c.byref(schema)))
    kept = _Released(schema)
    if schema.format != b"+s":
        raise TypeError("the Arrow stream has no columns: it must be one of record batches")
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
                lists = child.format.startswith(_LISTS)
                column = refused_column(error, array.length, lists)
            name = (child.name or b"").decode()
            if name in block:
                column = refused_column(ValueError("there are several columns of that name"), array.length)
            block[name] = column
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


def _metadata(schema: ArrowSchema) -> Dict[str, str]:
    """Returns the metadata of a column. It is stored as a number of pairs, with each text's length before the text."""
    out: Dict[str, str] = {}
    if not schema.metadata:
        return out
    at = schema.metadata

    def number() -> int:
        nonlocal at
        at += 4
        return c.c_int32.from_address(at - 4).value

    def text() -> str:
        nonlocal at
        length = number()
        at += length
        return c.string_at(at - length, length).decode("utf-8", "replace")

    for _ in range(number()):
        name = text()
        out[name] = text()
    return out


def _both(a: Optional[np.ndarray], b: Optional[np.ndarray]) -> Optional[np.ndarray]:
    return b if a is None else a if b is None else a & b


def _arrow_column(schema: ArrowSchema, array: ArrowArray, first: int, count: int) -> Column:
    """Returns rows [first, first + count) of an array, counted from the array's own offset."""
    first += array.offset
    kind = schema.format.decode()
    extension = _metadata(schema).get("ARROW:extension:name", "")
    if extension not in _EXTENSIONS:
        raise TypeError(f'it is of Arrow\'s extension type "{extension}", which is not known; {_TAKEN}')
    if kind == "n":
        return none_column(count)
    if kind == "+r":
        return _of_runs(schema, array, first, count)
    present = _arrow_present(array, first, count)
    if schema.dictionary:
        return _of_dictionary(schema, array, first, count, present)
    if kind.split(":")[0] in _TIMES:
        stored, unit = _TIMES[kind.split(":")[0]]
        return Column(INT64, _buffer(array, 1, stored, first, count).astype(np.int64), present=present, unit=unit)
    if kind in _DURATIONS:
        ticks = _buffer(array, 1, "i8", first, count)
        return of_seconds(ticks, np.zeros(count, bool) if present is None else present == 0, _DURATIONS[kind])
    if kind in _INTEGERS:
        numbers = of_numbers(_buffer(array, 1, _INTEGERS[kind], first, count).copy())
        numbers.present = present
        return numbers
    if kind in _FLOATS:
        numbers = of_numbers(_buffer(array, 1, _FLOATS[kind], first, count).copy())
        numbers.present = _both(present, numbers.present)
        return numbers
    if kind == "b":
        return Column(INT64, _bits(array, 1, first, count).astype(np.int64), present=present, unit="bool")
    if kind.startswith("d:"):
        return text_column(_decimals(kind, array, first, count, present), present=present)
    if kind in ("u", "z", "U", "Z"):
        texts = _buffer(array, 1, "i4" if kind in "uz" else "i8", first, count + 1).astype(np.int64)
        raw = _buffer(array, 2, "u1", int(texts[0]), int(texts[-1] - texts[0])).copy()
        return Column(TEXT, raw, texts - texts[0], present=present)
    if kind in ("vu", "vz"):
        return text_column(_viewed(array, first, count, present), present=present)
    if kind.startswith("w:"):
        width = int(kind[2:])
        raw = _buffer(array, 1, "u1", width * first, width * count).copy()
        return Column(TEXT, raw, np.arange(count + 1, dtype=np.int64) * width, present=present)
    if schema.format.startswith(_LISTS):
        return _of_lists(schema, array, first, count, present)
    name = next((f" ({name})" for begin, name in _NAMES if kind.startswith(begin)), "")
    raise TypeError(f'it is of Arrow\'s type "{kind}"{name}; {_TAKEN}')


def _ranges(kind: str, array: ArrowArray, first: int, count: int) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the index of each list's first value, and its length."""
    if kind.startswith("+w:"):
        width = int(kind[3:])
        return np.arange(first, first + count, dtype=np.int64) * width, np.full(count, width, np.int64)
    if kind in ("+vl", "+vL"):
        stored = "i4" if kind == "+vl" else "i8"
        begins, lengths = (_buffer(array, i, stored, first, count).astype(np.int64) for i in (1, 2))
        return begins, lengths
    ends = _buffer(array, 1, "i8" if kind == "+L" else "i4", first, count + 1).astype(np.int64)
    return ends[:-1], np.diff(ends)


def _of_lists(schema: ArrowSchema, array: ArrowArray, first: int, count: int, present: Optional[np.ndarray]) -> Column:
    begins, lengths = _ranges(schema.format.decode(), array, first, count)
    if present is not None:  # a missing list may have a length, which means nothing
        lengths = np.where(present, lengths, 0)
    full = lengths > 0
    low = int(begins[full].min()) if full.any() else 0
    high = int((begins + lengths)[full].max()) if full.any() else 0
    lists = offsets(lengths)
    inner_schema, inner = schema.children[0].contents, array.children[0].contents
    pairs = inner_schema.format == b"+s" and inner_schema.n_children == 2
    # Values in order and without gaps are used in place.
    in_order = high - low == int(lists[-1]) and (begins[full] - low == lists[:-1][full]).all()
    places = np.arange(lists[-1]) - np.repeat(lists[:-1], lengths) + np.repeat(begins - low, lengths)

    def values(schema: ArrowSchema, array: ArrowArray, at: int) -> Column:
        column = _arrow_column(schema, array, at, high - low)
        if column.lists is not None:
            raise TypeError("it has lists of lists, which are not taken")
        return as_lists(column if in_order else taken(column, places), lists)

    if not pairs:
        return values(inner_schema, inner, low)
    try:
        value, weights = (
            values(inner_schema.children[i].contents, inner.children[i].contents, low + inner.offset) for i in (0, 1)
        )
    except RefusedValue as error:
        raise RefusedValue("it has lists, or nothing, inside of pairs, which is not taken", error.row) from None
    if weights.type == TEXT:
        raise TypeError("it has pairs whose second is a text, where a weight is a number")
    return with_weights(value, weights.values)


def _decimals(kind: str, array: ArrowArray, first: int, count: int, present: Optional[np.ndarray]) -> List[bytes]:
    """Returns the decimals of a column as texts. Its type is "d:precision,scale", or "d:precision,scale,bits" if the
    number of bits is not 128."""
    parts = [int(part) for part in kind[2:].split(",")]
    scale, width = parts[1], (parts[2] if len(parts) > 2 else 128) // 8
    raw, out = _buffer(array, 1, "u1", width * first, width * count).tobytes(), []
    with decimal.localcontext() as context:
        context.prec = 100
        for i in range(count):
            number = int.from_bytes(raw[width * i : width * (i + 1)], "little", signed=True)
            there = present is None or present[i]
            out.append(format(decimal.Decimal(number).scaleb(-scale), "f").encode() if there else b"")
    return out


def _viewed(array: ArrowArray, first: int, count: int, present: Optional[np.ndarray]) -> List[bytes]:
    """Returns the texts of string views. A view has 4 bytes of length, then 12 bytes: the text if it is short,
    otherwise a prefix, the number of a buffer, and the text's offset there."""
    raw, out = _buffer(array, 1, "u1", 16 * first, 16 * count).tobytes(), []
    for i, at in enumerate(range(0, 16 * count, 16)):
        length = int.from_bytes(raw[at : at + 4], "little")
        if present is not None and not present[i]:
            out.append(b"")
        elif length <= 12:
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
    if words.rows() == 0:
        return none_column(count)
    if words.lists is not None:
        lengths = np.diff(words.lists)[index]
        if present is not None:
            lengths[present == 0] = 0
        begins, lists = words.lists[:-1][index], offsets(lengths)
        places = np.arange(lists[-1]) - np.repeat(lists[:-1], lengths) + np.repeat(begins, lengths)
        out = taken(words, places)
        out.lists, out.weights = lists, None if words.weights is None else words.weights[places]
        return out
    out = taken(words, index)
    out.present = _both(present, out.present)
    return out


def _of_runs(schema: ArrowSchema, array: ArrowArray, first: int, count: int) -> Column:
    """Expands a run-end encoded array, which has a value for each run, and the end of each run."""
    ends_of, values = array.children[0].contents, array.children[1].contents
    kind = _INTEGERS[schema.children[0].contents.format.decode()]
    ends = _buffer(ends_of, 1, kind, ends_of.offset, ends_of.length).astype(np.int64)
    column = _arrow_column(schema.children[1].contents, values, 0, values.length)
    if column.lists is not None:
        raise TypeError("it has runs of lists, which are not taken")
    return taken(column, np.searchsorted(ends, np.arange(first, first + count), "right"))
