"""Sharders written in Python: they say how a table may be split (abi/sharder.h)."""

from __future__ import annotations

import ctypes as c
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Sequence, Tuple, Union

import numpy as np

from . import _library as _l
from ._components import Component, check_flags, guarded, instance, register

KIND = "tessera.sharder/1"
_PLACEMENTS = {"any_rank": 0, "one_host": 1, "in_host": 2, "every_rank": 3, "hosts": 4}
_COMBINES = {"concat": 0, "sum": 1, "host_sum": 2, "replica": 3}
_UNIMPLEMENTED = 12
_WHEN_ASKED = 1  # a planner tries the sharder only for tables that name it

_i32, _u32, _i64 = c.c_int32, c.c_uint32, c.c_int64
_Err = c.POINTER(_l.Error)


class _Table(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("name", c.c_char_p),
        ("rows", _i64),
        ("cols", _i64),
        ("dtype", _u32),
        ("pooling", _i32),
        ("reserved", _u32),
        ("num_features", _u32),
        ("features", c.POINTER(c.c_char_p)),
    ]


class _Topology(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("world_size", _u32),
        ("local_world_size", _u32),
        ("device_type", _i32),
        ("reserved", _u32),
        ("device_bytes", c.POINTER(c.c_uint64)),
    ]


class _Constraints(c.Structure):
    _fields_ = [("struct_size", _u32), ("flags", _u32), ("min_partition", _i64), ("max_shards", _i64)]


class _Rectangle(c.Structure):
    _fields_ = [("row", _i64), ("rows", _i64), ("col", _i64), ("cols", _i64)]


class _Part(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("placement", _i32),
        ("combine", _i32),
        ("row_set", _i32),
        ("num_rectangles", _u32),
        ("rectangle_stride", _u32),
        ("reserved", _u32),
        ("rectangles", c.POINTER(_Rectangle)),
    ]


class _Layout(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("num_parts", _u32),
        ("part_stride", _u32),
        ("num_row_sets", _u32),
        ("reserved", _u32),
        ("parts", c.POINTER(_Part)),
        ("cookie", _i64),
    ]


class _Sink(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("self", c.c_void_p),
        ("add", c.CFUNCTYPE(_i32, c.c_void_p, c.c_void_p, c.c_void_p)),
    ]


class _Route(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("num_row_sets", _u32),
        ("reserved", _u32),
        ("table", c.POINTER(_Table)),
        ("topology", c.POINTER(_Topology)),
        ("cookie", _i64),
        ("ids", c.POINTER(_l.DLTensor)),
        ("row_sets", c.POINTER(_l.DLTensor)),
        ("local_rows", c.POINTER(_l.DLTensor)),
        ("stream", c.c_void_p),
    ]


_Propose = c.CFUNCTYPE(
    _i32, c.c_void_p, c.POINTER(_Table), c.POINTER(_Topology), c.POINTER(_Constraints), c.POINTER(_Sink), _Err
)
_RouteCall = c.CFUNCTYPE(_i32, c.c_void_p, c.POINTER(_Route), _Err)


class _Sharder(c.Structure):
    _fields_ = [
        ("struct_size", _u32),
        ("flags", _u32),
        ("propose", _Propose),
        ("route", _RouteCall),
        ("unroute", _RouteCall),
    ]


class TableToCut(NamedTuple):
    """The description of a table for a sharder. pooling: "NONE" (sequences), "SUM", "MEAN", "MAX"."""

    name: str
    rows: int
    cols: int
    pooling: str
    features: Tuple[str, ...]


class RankTopology(NamedTuple):
    """Rank r is on host r // local_world_size. device_bytes: free memory, one for each rank; empty in ``route``."""

    world_size: int
    local_world_size: int
    device_bytes: Tuple[int, ...]


class Limits(NamedTuple):
    """min_partition: the least width of a column shard; 0: any. max_shards: the most shards; 0: any. A sharder that
    cannot keep to them offers no layout."""

    min_partition: int
    max_shards: int


@dataclass
class LayoutPart:
    """Rectangles ``(row, rows, col, cols)`` and the ranks on which they may be placed.

    placement: "any_rank", "one_host", "in_host", "every_rank" (rectangle i on rank i) or "hosts". combine: "concat"
    (each has all rows of its columns), "sum" (rows are cut), "host_sum" or "replica". routed: ``route`` decides which
    rectangle has which row; a rectangle's ``rows`` is their number, and its ``row`` is 0.
    """

    rectangles: Sequence[Tuple[int, int, int, int]]
    placement: str = "any_rank"
    combine: str = "concat"
    routed: bool = False

    def _row_sets(self) -> int:
        if not self.routed:
            return 0
        return 1 if self.combine == "replica" else sum(r[2] == self.rectangles[0][2] for r in self.rectangles)

    def _raw(self) -> _Part:
        for given, known in ((self.placement, _PLACEMENTS), (self.combine, _COMBINES)):
            if given not in known:
                raise _l.InvalidArgument(f'there is no "{given}"; use one of {", ".join(known)}')
        rectangles = (_Rectangle * max(1, len(self.rectangles)))(
            *[_Rectangle(*[int(number) for number in rectangle]) for rectangle in self.rectangles]
        )
        return _Part(
            c.sizeof(_Part), 0, _PLACEMENTS[self.placement], _COMBINES[self.combine], int(self.routed),
            len(self.rectangles), c.sizeof(_Rectangle), 0, rectangles,
        )  # fmt: skip


@dataclass
class Layout:
    """Parts that together cover the table once. cookie: a number that ``route`` gets back."""

    parts: Sequence[LayoutPart]
    cookie: int = 0


class Routed(NamedTuple):
    """The layout that was chosen, for ``route`` and ``unroute``."""

    table: TableToCut
    topology: RankTopology
    num_row_sets: int
    cookie: int


def _table(raw: _Table) -> TableToCut:
    features = tuple(raw.features[i].decode() for i in range(raw.num_features))
    pooling = ("NONE", "SUM", "MEAN", "MAX")[raw.pooling]
    return TableToCut(raw.name.decode(), raw.rows, raw.cols, pooling, features)


def _topology(raw: _Topology) -> RankTopology:
    free = tuple(raw.device_bytes[: raw.world_size]) if raw.device_bytes else ()
    return RankTopology(raw.world_size, raw.local_world_size, free)


def _array(tensor: Any, kind: type) -> np.ndarray:
    """Returns an array over the library's memory, valid during the call."""
    size = tensor.contents.shape[0]
    if size == 0:
        return np.empty(0, kind)
    memory = (c.c_char * (size * np.dtype(kind).itemsize)).from_address(
        tensor.contents.data + tensor.contents.byte_offset
    )
    return np.frombuffer(memory, kind)


def _offer(layout: Union[Layout, LayoutPart], sink: Any) -> None:
    if isinstance(layout, LayoutPart):
        layout = Layout([layout])
    if not isinstance(layout, Layout):
        raise TypeError(f"propose must give Layouts and LayoutParts, not a {type(layout).__name__}")
    parts = (_Part * max(1, len(layout.parts)))(*[part._raw() for part in layout.parts])
    row_sets = sum(part._row_sets() for part in layout.parts)
    raw = _Layout(c.sizeof(_Layout), 0, len(layout.parts), c.sizeof(_Part), row_sets, 0, parts, layout.cookie)
    error = _l.Error()
    code = sink.contents.add(c.addressof(sink.contents), c.addressof(raw), c.addressof(error))
    if code not in (0, _UNIMPLEMENTED):  # a layout that this library cannot run is skipped
        _l.raise_error(code, error)


class _SharderPart(Component):
    def __init__(self, id: str, of: Any) -> None:
        made = instance(of)
        propose = made if not hasattr(made, "propose") else made.propose
        if not callable(propose):
            raise TypeError(f"the sharder {id} is a function, or has propose(table, topology, limits)")
        if hasattr(made, "route") != hasattr(made, "unroute"):
            raise TypeError(f"the sharder {id} has only one of route and unroute: it needs both, or neither")
        self._propose, self._sharder = propose, made
        table = _Sharder(c.sizeof(_Sharder), _WHEN_ASKED, _Propose(self._on_propose))
        if hasattr(made, "route"):
            table.route, table.unroute = _RouteCall(self._on_route), _RouteCall(self._on_unroute)
        super().__init__(KIND, id, of.__doc__ or "", table, lambda: made)

    def _on_propose(self, handle: Any, table: Any, topology: Any, limits: Any, sink: Any, err: Any) -> int:
        def body() -> None:
            check_flags(
                table=table.contents, topology=topology.contents, constraints=limits.contents, layout_sink=sink.contents
            )
            of = Limits(limits.contents.min_partition, limits.contents.max_shards)
            for layout in self._propose(_table(table.contents), _topology(topology.contents), of) or ():
                _offer(layout, sink)

        return guarded(f'sharder "{self.id}"', "propose", err, body)

    def _routed(self, raw: _Route) -> Routed:
        check_flags(route=raw, table=raw.table.contents, topology=raw.topology.contents)
        return Routed(_table(raw.table.contents), _topology(raw.topology.contents), raw.num_row_sets, raw.cookie)

    def _on_route(self, handle: Any, route: Any, err: Any) -> int:
        def body() -> None:
            raw = route.contents
            row_sets, rows = self._sharder.route(self._routed(raw), _array(raw.ids, np.int64))
            _array(raw.row_sets, np.int32)[:] = row_sets
            _array(raw.local_rows, np.int64)[:] = rows

        return guarded(f'sharder "{self.id}"', "route", err, body)

    def _on_unroute(self, handle: Any, route: Any, err: Any) -> int:
        def body() -> None:
            raw = route.contents
            where = _array(raw.row_sets, np.int32), _array(raw.local_rows, np.int64)
            _array(raw.ids, np.int64)[:] = self._sharder.unroute(self._routed(raw), *where)

        return guarded(f'sharder "{self.id}"', "unroute", err, body)


def sharder(id: str) -> Callable[[Any], Any]:
    """Makes a class or a function a sharder with that name, for tables that name it: ``ParameterConstraints(
    sharding_types=["acme.stripe"])``, or ``sharding = ["acme.stripe"]`` in a job.

    A class has ``propose(table, topology, limits)``, which returns ``Layout``s or ``LayoutPart``s, best first; a
    function is ``propose`` itself. For parts with ``routed=True``, the class also has ``route(layout, ids) ->
    (row_sets, rows)`` and its inverse ``unroute(layout, row_sets, rows) -> ids``, over NumPy arrays. Equal input must
    give equal output on every rank. Only runtimes that are opened afterwards have the sharder, so decorate before ranks
    meet. Several threads may call it. Every step waits for ``route``, so use this to try an idea before you write a
    plugin in C++."""

    def decorate(of: Any) -> Any:
        register(KIND, _SharderPart(id, of))
        return of

    return decorate
