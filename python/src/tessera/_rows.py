"""Gives a program's data to a model that was trained on columns: the columns that it needs, in blocks of rows."""

from __future__ import annotations

import ctypes as c
import functools
import itertools
import threading
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple

from . import _library as _l
from ._columns import Column, blocks_of, joined
from ._readers import Block, ReaderComponent
from ._runtime import Runtime

READER = "python.rows"
_ROWS = 1 << 16  # rows of a frame that are converted to columns at a time
_Block = Dict[str, Column]


def columns_taken(columns: Sequence[Mapping[str, Any]], features: Mapping[str, int]) -> List[str]:
    """Returns the names of the columns that a model reads: dense values, and ids that it looks up or crosses."""
    wanted = set(features)
    for column in columns:
        if column["name"] in wanted:
            wanted.update(column.get("cross", []))
    out = []
    for column in columns:
        looked_up = column["as"] == "ids" and column["name"] in wanted and "cross" not in column
        if looked_up or column["as"] in ("dense", "vector"):
            out.append(column.get("column") or column["name"])
    return list(dict.fromkeys(out))


class Rows:
    """The rows of ``data``, which is anything that ``tessera.train`` takes. taken: the columns that the model needs;
    others are left out."""

    def __init__(self, data: Any, taken: Sequence[str]) -> None:
        self._taken = taken
        self.pieces: List[Tuple[int, Callable[[], _Block]]] = []  # number of rows, and a function that makes columns
        names = self._names_of(data)
        if names is not None:
            self._require(names)
        if names is not None and not isinstance(data, Mapping):
            self._cut(data, names)
            return
        if isinstance(data, Mapping):
            data = {name: value for name, value in data.items() if str(name) in taken}
        for block in blocks_of(data):
            self._require(block)
            kept = {name: block[name] for name in taken}
            self.pieces.append((next(iter(kept.values())).rows() if kept else 0, lambda kept=kept: kept))

    @property
    def count(self) -> int:
        """Returns the number of rows of all pieces."""
        return sum(rows for rows, _ in self.pieces)

    @staticmethod
    def _names_of(data: Any) -> Any:
        """Returns the column names of a mapping, or of a frame that can be sliced (pandas, polars, pyarrow); otherwise
        None."""
        if isinstance(data, Mapping):
            return [str(name) for name in data]
        if hasattr(data, "iloc") and hasattr(data, "columns"):
            return [str(name) for name in data.columns]
        if hasattr(data, "slice") and hasattr(data, "select") and hasattr(data, "__len__"):
            return list(getattr(data, "column_names", None) or getattr(data, "columns", []))
        return None

    def _require(self, names: Any) -> None:
        missing = [name for name in self._taken if name not in names]
        if missing:
            what = "column" if len(missing) == 1 else "columns"
            lacking = ", ".join(f'"{name}"' for name in missing)
            raise _l.NotFound(
                f"the data given to predict() has no {what} {lacking}: the model takes {', '.join(self._taken)}, "
                f"but the data has {', '.join(names) or 'none'}"
            )

    def _cut(self, frame: Any, names: Sequence[str]) -> None:
        twice = [name for name in self._taken if list(names).count(name) > 1]
        if twice:
            raise _l.InvalidArgument(f'there are several columns "{twice[0]}"')
        if hasattr(frame, "iloc"):
            part = frame.iloc[:, [i for i, name in enumerate(names) if name in self._taken]]
            cut = lambda first, rows: part.iloc[first : first + rows]  # noqa: E731
        else:
            cut = frame.select(list(self._taken)).slice
        for first in range(0, len(frame), _ROWS):
            rows = min(_ROWS, len(frame) - first)
            self.pieces.append((rows, functools.partial(self._block, cut, first, rows)))

    def _block(self, cut: Callable[[int, int], Any], first: int, rows: int) -> _Block:
        return joined([block for block in blocks_of(cut(first, rows))])


class _Reader:
    """The reader through which the library reads ``Rows``. The path is the number assigned to them."""

    def open(self, path: str) -> List[Block]:
        self._rows = _given[path]
        return [Block("data", rows) for rows, _ in self._rows.pieces]

    def read(self, i: int) -> _Block:
        return self._rows.pieces[i][1]()


_given: Dict[str, Rows] = {}
_numbers = itertools.count()
_lock = threading.Lock()


@functools.lru_cache(maxsize=None)
def _opened() -> Runtime:
    return Runtime(_parts=[ReaderComponent(READER, _Reader, called="the data given to predict()")])


def predict_rows(model: Any, rows: Rows, outputs: Any, count: int) -> List[str]:
    """Calls tsr_model_predict_rows() for these rows, and returns the warning, if any."""
    with _lock:
        runtime = _opened()
        path = str(next(_numbers))
    _given[path], told = rows, c.c_void_p()
    try:
        _l.call(
            "model_predict_rows", runtime._handle.value, model, READER.encode(), path.encode(), outputs, count,
            c.byref(told),
        )  # fmt: skip
    finally:
        del _given[path]
    return _l.text(told).splitlines()


def as_mapping(features: Any, names: Set[str]) -> Any:
    """Returns features by name, for ids that are row numbers. ``features`` may be a frame."""
    if isinstance(features, Mapping) or hasattr(features, "iloc"):
        return features
    columns = Rows._names_of(features)
    if columns is None:
        raise _l.InvalidArgument(
            f"predict() takes a mapping from features to their ids, or a frame, not an object of type "
            f"{type(features).__name__}: the model takes {', '.join(sorted(names))}"
        )
    return {name: features[name] for name in columns if name in names}
