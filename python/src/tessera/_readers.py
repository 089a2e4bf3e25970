"""Readers written in Python: rows of columns, block by block (abi/draft/reader.h)."""

from __future__ import annotations

import ctypes as c
import difflib
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import _library as _l
from ._columns import TEXT, Column, blocks_of, wanted_as
from ._components import Component, guarded, instance, register

KIND = "tessera.reader/draft-1"
_LIST, _WEIGHTED = 0x10000, 0x20000
_OUT_OF_RANGE = 11

_i32, _u32, _i64, _text = c.c_int32, c.c_uint32, c.c_int64, c.c_char_p
_Err = c.POINTER(_l.Error)


class _Source(c.Structure):
    _fields_ = [("struct_size", _u32), ("flags", _u32), ("path", _text), ("block_bytes", _i64)]


class _Column(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("name", _text),
        ("type", _i32),
        ("reserved", _i32),
        ("about", _text),
    ]


class _Block(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("file", _i64),
        ("first_row", _i64),
        ("rows", _i64),
        ("bytes", _i64),
    ]


class _Want(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("name", _text),
        ("type", _i32),
        ("separator", c.c_char),
        ("weight_separator", c.c_char),
        ("reserved", c.c_char * 2),
    ]


class _Values(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("values", c.c_void_p),
        ("texts", c.c_void_p),
        ("lists", c.c_void_p),
        ("weights", c.c_void_p),
        ("present", c.c_void_p),
    ]


_Open = c.CFUNCTYPE(_i32, c.c_void_p, c.POINTER(_Source), _Err)
_File = c.CFUNCTYPE(_i32, c.c_void_p, _i64, c.POINTER(_text), _Err)
_GetColumn = c.CFUNCTYPE(_i32, c.c_void_p, _i64, c.POINTER(_Column), _Err)
_GetBlock = c.CFUNCTYPE(_i32, c.c_void_p, _i64, c.POINTER(_Block), _Err)
_Select = c.CFUNCTYPE(_i32, c.c_void_p, _i64, _u32, c.c_void_p, _Err)
_Read = c.CFUNCTYPE(_i32, c.c_void_p, _i64, _u32, c.c_void_p, _Err)


class _Reader(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("open", _Open),
        ("file", _File),
        ("column", _GetColumn),
        ("block", _GetBlock),
        ("select", _Select),
        ("read", _Read),
    ]


class Block(NamedTuple):
    """Some rows of a file. rows: their number."""

    file: str
    rows: int


class _Kept:
    """A reader from a function that returns all batches, which are kept in memory."""

    first_row = 0

    def __init__(self, batches: Callable[[str], Any]) -> None:
        self._batches = batches
        self._blocks: List[Dict[str, Column]] = []

    def open(self, path: str) -> List[Block]:
        self._blocks = [block for block in blocks_of(self._batches(path)) if _rows(block)]
        return [Block(path, _rows(block)) for block in self._blocks]

    def read(self, i: int) -> Dict[str, Column]:
        return self._blocks[i]


def _rows(block: Dict[str, Column]) -> int:
    return next(iter(block.values())).rows() if block else 0


class _Wanted(NamedTuple):
    name: str
    type: int
    is_list: bool
    separator: str
    weight_separator: str  # empty if the column has no weights


class _Opened:
    """A reader and its position, to which a handle of the library refers."""

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self.blocks: List[Block] = []
        self.names: List[bytes] = []  # names of files and columns, kept because the library has pointers to them
        self.abouts: List[Optional[bytes]] = []
        self.files: List[bytes] = []
        self.first: Dict[str, Column] = {}
        self.wants: List[_Wanted] = []
        self.given: List[Column] = []

    def open(self, path: str) -> None:
        self.blocks = [Block(*block) for block in self.reader.open(path)]
        self.files = list(dict.fromkeys(block.file.encode() for block in self.blocks))
        self.first = self.read(0) if self.blocks else {}
        self.names = [name.encode() for name in self.first]
        self.abouts = [_about(column) for column in self.first.values()]
        self.bytes_of_row = sum(column.bytes() for column in self.first.values()) // max(1, _rows(self.first)) + 1
        self.first_rows, rows = [], {}  # type: List[int], Dict[str, int]
        for block in self.blocks:
            self.first_rows.append(rows.get(block.file, 0))
            rows[block.file] = self.first_rows[-1] + block.rows

    def read(self, i: int) -> Dict[str, Column]:
        given = self.reader.read(i)
        if not isinstance(given, dict) or not all(isinstance(column, Column) for column in given.values()):
            blocks = list(blocks_of(given))
            if len(blocks) != 1:
                raise ValueError(f"block {i} is {len(blocks)} batches, but must be one")
            given = blocks[0]
        if _rows(given) != self.blocks[i].rows:
            raise ValueError(f"block {i} has {_rows(given)} rows, but open() said {self.blocks[i].rows}")
        return given


def _about(column: Column) -> Optional[bytes]:
    """Returns Arrow's name of the type of times, which has their unit; None for other values."""
    if column.unit in (None, "bool"):
        return None
    time, _, unit = column.unit.rpartition(":")
    return f"time64[{unit}]".encode() if time else b"date32[day]" if unit == "day" else f"timestamp[{unit}]".encode()


def _words(name: str) -> str:
    return f'column "{name}"'


class ReaderComponent(Component):
    """A reader component. ``of`` is a class or object with open(path) and read(i), or a function that returns all
    batches of a path."""

    def __init__(self, id: str, of: Any, called: Optional[str] = None) -> None:
        reads = hasattr(of, "open") and hasattr(of, "read")
        if not reads and not callable(of):
            raise TypeError(f"the reader {id} is a function of a path, or has open(path) and read(block)")
        self._called, self._is_data = called or f'reader "{id}"', called is not None
        table = _Reader(
            c.sizeof(_Reader), 0, _Open(self._open), _File(self._file), _GetColumn(self._column),
            _GetBlock(self._block), _Select(self._select), _Read(self._read),
        )  # fmt: skip
        doc = getattr(of, "__doc__", None) or ""
        super().__init__(KIND, id, doc, table, lambda: _Opened(instance(of) if reads else _Kept(of)))

    def _named(self, function: str) -> str:
        """Names the function in errors of a user's reader; a program's own data has no function to name."""
        return "" if self._is_data else function

    def _open(self, handle: int, source: Any, err: Any) -> int:
        at = self.objects[handle]
        return guarded(self._called, self._named("open"), err, lambda: at.open(source.contents.path.decode()))

    def _file(self, handle: int, i: int, out: Any, err: Any) -> int:
        files = self.objects[handle].files
        if i >= len(files):
            return _OUT_OF_RANGE
        out[0] = files[i]
        return 0

    def _column(self, handle: int, i: int, out: Any, err: Any) -> int:
        at = self.objects[handle]
        if i >= len(at.names):
            return _OUT_OF_RANGE
        column = at.first[at.names[i].decode()]
        out.contents.name, out.contents.type = at.names[i], column.type
        out.contents.flags = (column.lists is not None) * _LIST | (column.weights is not None) * _WEIGHTED
        out.contents.about = at.abouts[i]
        return 0

    def _block(self, handle: int, i: int, out: Any, err: Any) -> int:
        at = self.objects[handle]
        if i >= len(at.blocks):
            return _OUT_OF_RANGE
        block, to = at.blocks[i], out.contents
        to.file, to.first_row, to.rows = at.files.index(block.file.encode()), at.first_rows[i], block.rows
        to.bytes = block.rows * at.bytes_of_row
        return 0

    def _select(self, handle: int, count: int, stride: int, wants: int, err: Any) -> int:
        at = self.objects[handle]

        def body() -> None:
            at.wants = []
            for k in range(count):
                raw = _Want.from_address(wants + k * stride)
                name = raw.name.decode()
                if at.blocks and name not in at.first:
                    near = difflib.get_close_matches(name, at.first, 1, 0)
                    raise _l.NotFound(
                        f'there is no column "{name}"; the nearest is "{near[0] if near else ""}" of these: '
                        + ", ".join(list(at.first)[:30]) + ", ..." * (len(at.first) > 30)
                    )  # fmt: skip
                weight = raw.weight_separator.decode() if raw.flags & _WEIGHTED else ""
                at.wants.append(_Wanted(name, raw.type, bool(raw.flags & _LIST), raw.separator.decode(), weight))
                if at.blocks:
                    self._given(at, 0, at.first, at.wants[-1])

        return guarded(self._called, self._named("select"), err, body)

    def _given(self, at: _Opened, i: int, block: Dict[str, Column], want: _Wanted) -> Column:
        if want.name not in block:
            raise LookupError(f'a block has no column "{want.name}", which others have')
        column, first = block[want.name], at.first[want.name]
        try:
            if column.weights is not None and column.count() and not want.weight_separator:
                raise ValueError("it has weights, but lists without weights are wanted: set weighted = true for its "
                                 "[[column]], or leave the weights out")  # fmt: skip
            if want.type != TEXT and None not in (_about(column), _about(first)) and column.unit != first.unit:
                raise ValueError(f"it has times in the unit {column.unit}, but those of the first rows are in "
                                 f"{first.unit}: as numbers they differ, so convert all to one unit")  # fmt: skip
            return wanted_as(column, *want[1:])
        except (ValueError, TypeError) as error:
            row = getattr(error, "row", None)
            where = "" if row is None else f"row {at.first_rows[i] + row + 1}, "
            raise _l.InvalidArgument(f"{where}{_words(want.name)}: {error}") from None

    def _read(self, handle: int, i: int, stride: int, out: int, err: Any) -> int:
        at = self.objects[handle]

        def body() -> None:
            block = at.read(i)
            at.given = [self._given(at, i, block, want) for want in at.wants]
            for k, column in enumerate(at.given):
                to = _Values.from_address(out + k * stride)
                to.values = column.values.ctypes.data
                to.texts = None if column.texts is None else column.texts.ctypes.data
                to.lists = None if column.lists is None else column.lists.ctypes.data
                weighted = bool(at.wants[k].weight_separator)
                to.weights = column.weights.ctypes.data if weighted else None
                no_list = column.lists is None and column.present is not None
                to.present = column.present.ctypes.data if no_list else None

        return guarded(self._called, self._named("read"), err, body)


def reader(id: str) -> Callable[[Any], Any]:
    """Makes a function or a class a reader with that name. A job uses it by ``data.reader = "acme.logs"``.

    The function takes the job's ``data.path`` and returns batches: an object with ``__arrow_c_stream__``, or an
    iterable of mappings from columns to values (arrays, lists of numbers or texts, lists of these, mappings from these
    to weights; None for a missing value). All batches are kept in memory. Use a class for data that does not fit in
    memory: ``open(path)`` returns a list of ``Block(file, rows)``, and ``read(i)`` returns the batch of block i, in any
    order and more than once. Every rank has its own reader, which sees the same files. Only runtimes that are opened
    afterwards have the reader."""

    def decorate(of: Any) -> Any:
        register(KIND, ReaderComponent(id, of))
        return of

    return decorate
