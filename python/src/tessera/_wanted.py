"""Converts columns to the type that the library wants: texts, floats or whole numbers. The library (tsr_words) makes
the text by which vocabularies and hashes know a value."""

from __future__ import annotations

import ast
import ctypes as c
import json
import re
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from . import _library as _l
from ._arrays import Tensor
from ._values import (
    FLOAT32,
    FLOAT64,
    INT64,
    LARGEST,
    NOTHING_INSIDE,
    TEXT,
    Column,
    RefusedValue,
    offsets,
    taken,
    text_column,
    with_weights,
)

_NAMES = {TEXT: "text", FLOAT32: "floats", INT64: "whole numbers", FLOAT64: "floats"}
# The same words as is_missing_word() of tessera/sdk/values.h.
_MISSING = frozenset(
    r"na n/a n.a. nan -nan null null. none nil nat <na> #n/a #na ? - -- \n inf +inf -inf infinity +infinity -infinity "
    "1.#inf -1.#inf 1.#qnan -1.#qnan 1.#ind -1.#ind #null!".split()
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
# The words that programs print around lists and items: array([3, 17], dtype=int64), np.int64(3).
_WRAPPED = re.compile(rb"(?:(?:np\.|numpy\.)?array|deque|frozenset|set|tuple|list|List|Array|Seq|Set|Vector|c|Series|"
                      rb"WrappedArray|ArraySeq|ArrayBuffer)\((.*)\)", re.S)  # fmt: skip
_LISTED = re.compile(rb"([\[{(].*[\]})])(?:\s*,\s*\w+\s*=.*)?", re.S)
_NAMED_ITEM = re.compile(r"\b(?:(?:np|numpy)\.\w+|Decimal|UUID)\(([^()]*)\)")
_TRUTH = {"true": 1, "True": 1, "TRUE": 1, "false": 0, "False": 0, "FALSE": 0}


def wanted_as(column: Column, type: int, is_list: bool, separator: str, weight_separator: str = "") -> Column:
    """Converts the column to the type that the library wants. With ``weight_separator`` it has weights, which follow
    the separator in texts. Raises ValueError if the column cannot be converted."""
    if column.refused is not None:
        raise column.refused if isinstance(column.refused, ValueError) else ValueError(str(column.refused))
    if column.lists is not None and not is_list:
        raise ValueError("it has lists, but one value for each row is wanted")
    if is_list and column.lists is None:
        column = _split(column, separator) if column.type == TEXT else _alone(column)
    if weight_separator and column.weights is None:
        if column.type != TEXT and column.count() > 0:
            raise ValueError("it has no weights, but weighted lists are wanted: give pairs of a value and its weight")
        column = _weighed(column, weight_separator)
    if type == TEXT:
        return with_words(column)
    if column.type == TEXT:
        column = _parsed(column, type)
    if column.present is not None:  # a missing value may have any bits, so they are set to 0
        column = replace(column, values=np.where(column.present, column.values, column.values.dtype.type(0)))
    return _whole(column) if type == INT64 else _floats(column, type)


def with_words(column: Column) -> Column:
    """Converts values to texts; an empty text is missing."""
    if column.type == TEXT:
        if column.lists is not None:
            return column
        there = column.texts[1:] > column.texts[:-1]
        if column.present is not None:
            hidden = there & (column.present == 0)
            there &= column.present != 0
            if hidden.any():
                lengths = np.where(there, np.diff(column.texts), 0)
                texts = taken(replace(column, present=None), np.flatnonzero(there))
                column = replace(column, values=texts.values, texts=offsets(lengths))
        return column if there.all() else replace(column, present=there.astype(np.uint8))
    seen = _seen(column)
    values, unit = column.values[seen], column.unit
    if unit is not None and unit.startswith("time:"):
        values, unit = values * {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[unit[5:]], "time"
    raw, ends = _words(np.ascontiguousarray(values), unit)
    lengths = np.zeros(column.count(), np.int64)
    lengths[seen] = np.diff(ends, prepend=-1) - 1
    return replace(column, type=TEXT, values=raw[raw != 10], texts=offsets(lengths), unit=None)


def _words(values: np.ndarray, unit: Optional[str]) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the words of the values as lines, and the end of each line."""
    text, tensor = c.c_void_p(), Tensor(values)
    _l.call("words", tensor.address, unit and unit.encode(), c.byref(text))
    raw = np.frombuffer(_l.text_bytes(text), np.uint8)
    return raw, np.flatnonzero(raw == 10)


def _floats(column: Column, type: int) -> Column:
    if type == FLOAT64:
        return replace(column, type=type, values=column.values.astype(np.float64, copy=False), unit=None)
    if column.values.dtype == np.float32:
        return replace(column, type=type)
    values = column.values
    if values.dtype == np.float64:
        large = np.abs(values) > LARGEST
        if large.any():
            first = int(np.argmax(large))
            raise RefusedValue(f"{float(values[first])!r} is too large for a float of 32 bits, which has up to 3.4e38",
                               column.row_of(first))  # fmt: skip
    return replace(column, type=type, values=values.astype(np.float32), unit=None)


def _whole(column: Column) -> Column:
    values = column.values
    if values.dtype == np.uint64:
        wrong = values > np.uint64(2**63 - 1)
    elif values.dtype.kind == "f":
        if (values != np.trunc(values)).any():
            first = int(np.argmax(values != np.trunc(values)))
            raise RefusedValue("it has floats that are not whole numbers, but whole numbers are wanted: "
                               f"{float(values[first])!r}", column.row_of(first))  # fmt: skip
        wrong = ~((values < 2.0**63) & (values >= -(2.0**63)))
    else:
        wrong = np.zeros(0, bool)
    if wrong.any():
        first = int(np.argmax(wrong))
        raise RefusedValue(f"{values[first].item()} does not fit into 64 bits with a sign", column.row_of(first))
    return replace(column, type=INT64, values=values.astype(np.int64, copy=False), unit=None)


def _parsed(column: Column, type: int) -> Column:
    """Parses texts as numbers. Words that programs write for a missing value, such as "nan", count as missing."""
    words, present = column.words(), np.ones(column.count(), np.uint8)
    if column.present is not None:
        present = column.present.copy()
    numbers: List[Any] = []
    for i, raw in enumerate(words):
        word = raw.decode("utf-8", "replace").strip()
        if present[i] and (_NUMBER.fullmatch(word) or word in _TRUTH):
            numbers.append(_TRUTH[word] if word in _TRUTH else _number_of(word, type, column.row_of(i)))
            continue
        if present[i] and word and word.lower() not in _MISSING:
            raise RefusedValue(f'it has text, but {_NAMES[type]} are wanted: "{word[:60]}" is not a number',
                               column.row_of(i))  # fmt: skip
        if column.lists is not None:
            raise RefusedValue(NOTHING_INSIDE, column.row_of(i))
        present[i] = 0
        numbers.append(0)
    more: Dict[str, Any] = dict(lists=column.lists, weights=column.weights)
    if column.lists is None and not present.all():
        more["present"] = present
    whole = type == INT64 and all(isinstance(number, int) for number in numbers)
    return Column(INT64 if whole else FLOAT64, np.array(numbers, np.int64 if whole else np.float64), **more)


def _number_of(word: str, type: int, row: int) -> Any:
    number = int(word) if type == INT64 and _WHOLE.fullmatch(word) else float(word)
    if number in (float("inf"), float("-inf")):
        raise RefusedValue(f"{word[:60]} is too large for a float", row)
    if type != INT64:
        return number
    if not -(2**63) <= number < 2**63:
        raise RefusedValue(f"{word[:60]} does not fit into 64 bits with a sign", row)
    return int(number) if number == int(number) else number


def _seen(column: Column) -> Any:
    return slice(None) if column.present is None else column.present.astype(bool)


def _alone(column: Column) -> Column:
    """Makes each value a list of one value, and each missing value an empty list."""
    has = np.ones(column.count(), np.int64) if column.present is None else column.present.astype(np.int64)
    return replace(column, values=column.values[_seen(column)], lists=offsets(has), present=None)


def _split(column: Column, separator: str) -> Column:
    """Parses texts as lists, which have a separator or are printed as by Python, NumPy or JSON."""
    rows = []
    for i, word in enumerate(column.words()):
        try:
            rows.append(_items(word.strip(), separator.encode()))
        except ValueError as error:
            raise RefusedValue(str(error), i) from None
    out = text_column([part for row in rows for part in row])
    out.lists = offsets([len(row) for row in rows])
    return out


def _items(word: bytes, separator: bytes) -> List[bytes]:
    if not word:
        return []
    if wrapped := _WRAPPED.fullmatch(word):
        inside = wrapped[1].strip()
        listed = _LISTED.fullmatch(inside)
        return _printed(listed[1] if listed else b"[" + inside + b"]")
    closed = {b"[": b"]", b"{": b"}", b"(": b")"}.get(word[:1])
    if closed and word.endswith(closed) and (closed != b")" or b"," in word or word == b"()"):
        return _printed(word)
    if closed in (b"]", b"}"):
        raise ValueError(f'"{_shown(word)}" begins with {word[:1].decode()} but does not end like a list')
    items = [item.strip() for item in word.split(None if separator.isspace() else separator)]
    if b"" in items:
        raise ValueError("there is a value missing in the list")
    return items


def _shown(word: bytes) -> str:
    return word[:40].decode("utf-8", "replace") + ("..." if len(word) > 40 else "")


def _printed(word: bytes) -> List[bytes]:
    """Returns the items of a list in brackets. Numbers keep their digits. An item of a mapping is "key:weight"."""
    text = _NAMED_ITEM.sub(r"\1", word.decode("utf-8", "surrogateescape"))
    try:
        value = json.loads(text, parse_int=_Digits, parse_float=_Digits, parse_constant=lambda name: None)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            value = text[1:-1].split("," if "," in text else None)  # without quotes
            value = [None if item.strip() in ("nan", "None", "null") else item.strip() for item in value]
    items = [f"{key}:{weight}" for key, weight in value.items()] if isinstance(value, Mapping) else list(value)
    for item in items:
        if isinstance(item, (list, tuple, Mapping, set)):
            raise ValueError(f'"{_shown(word)}" has a list or an object in its list')
        if item is None or item == "" or item == "..." or item != item:
            raise ValueError(f'there is a value missing in the list "{_shown(word)}"')
    return [item if isinstance(item, bytes) else str(item).encode("utf-8", "surrogateescape") for item in items]


class _Digits(str):
    """A number in JSON, with the digits as written."""


def _weighed(column: Column, separator: str) -> Column:
    """Turns lists of texts like "17:0.5" into lists of "17" with weights. A row without a value has none."""
    if column.type != TEXT:  # there are no values
        return with_weights(replace(column), [])
    nothing = ("", separator, "1")
    alone = column.lists is None
    parts = [word.decode().rpartition(separator) if word or not alone else nothing for word in column.words()]
    lacking = next((i for i, (_, found, _) in enumerate(parts) if not found), None)
    if lacking is not None:
        raise RefusedValue(f'a value has no weight after "{separator}"', column.row_of(lacking))
    out = text_column([value.encode() for value, _, _ in parts], lists=column.lists)
    try:
        weights = [float(weight) for _, _, weight in parts]
    except ValueError as error:
        raise ValueError(f'the text after "{separator}" is not a weight ({error})') from None
    return with_weights(out, weights)
