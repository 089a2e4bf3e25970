"""Makes columns from a program's data: Arrow streams, mappings of columns, and iterables of either."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping

import numpy as np

from ._arrow import ArrowArray, ArrowSchema, ArrowStream, arrow_blocks
from ._values import FLOAT32, FLOAT64, INT64, TEXT, Column, column_of, offsets, refused_column
from ._wanted import wanted_as

__all__ = [
    "FLOAT32", "FLOAT64", "INT64", "TEXT", "ArrowArray", "ArrowSchema", "ArrowStream", "Column", "blocks_of",
    "column_of", "joined", "wanted_as",
]  # fmt: skip


def behind(columns: List[Column]) -> Column:
    """Joins columns one after the other. If their types differ, the result has texts."""
    refused = next((column for column in columns if column.refused is not None), None)
    if refused is not None:
        return refused_column(refused.refused, sum(column.rows() for column in columns), refused.lists is not None)
    if any((one.type, one.values.dtype, one.unit) != (columns[0].type, columns[0].values.dtype, columns[0].unit)
           for one in columns):  # fmt: skip
        columns = [wanted_as(column, TEXT, column.lists is not None, " ") for column in columns]

    def ends(all: List[np.ndarray]) -> np.ndarray:
        return offsets(np.concatenate([np.diff(one) for one in all]))

    present = None
    if any(column.present is not None for column in columns):
        present = np.concatenate([
            np.ones(column.rows(), np.uint8) if column.present is None else column.present for column in columns
        ])  # fmt: skip
    first = columns[0]
    return Column(
        first.type,
        np.concatenate([column.values for column in columns]),
        None if first.texts is None else ends([column.texts for column in columns]),
        None if first.lists is None else ends([column.lists for column in columns]),
        present,
        None if first.weights is None else np.concatenate([column.weights for column in columns]),
        unit=first.unit,
    )


def joined(blocks: List[Dict[str, Column]]) -> Dict[str, Column]:
    """Joins blocks with the same columns, one after the other."""
    if len(blocks) == 1:
        return blocks[0]
    return {name: behind([block[name] for block in blocks]) for name in blocks[0]}


def _given_column(name: str, value: Any) -> Column:
    """Makes a column from a program's values. An invalid column is refused only when it is read, because a job need not
    use all columns."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f'column "{name}": a single text is not a column: give a list, with one value for each row')
    try:
        return column_of(value)
    except (TypeError, ValueError) as error:
        try:
            first = next((row for row in value if row is not None), None)
            return refused_column(error, len(value), isinstance(first, (list, tuple, dict, np.ndarray)))
        except TypeError:  # it has no rows
            raise TypeError(f'column "{name}": {error}') from None


def _by_name(frame: Any) -> Dict[str, Any]:
    """Returns a pandas frame's columns by name."""
    out: Dict[str, Any] = {}
    for name, values in frame.items():
        if str(name) in out:
            raise ValueError(f'there are several columns "{name}"')
        out[str(name)] = values
    return out


def _object_columns(data: Any) -> List[str]:
    """Returns the names of a polars frame's object columns, which polars would export as addresses."""
    if type(data).__module__.split(".")[0] != "polars" or not hasattr(data, "__arrow_c_stream__"):
        return []
    if not hasattr(data, "dtypes"):
        return []
    return [name for name, kind in zip(data.columns, data.dtypes) if str(kind) == "Object"]


def blocks_of(data: Any) -> Iterator[Dict[str, Column]]:
    """Yields the blocks of ``data``: an Arrow stream, one batch (a mapping of columns), or an iterable of batches."""
    stream = None
    objects = _object_columns(data)
    if objects:
        data = {name: data[name].to_list() if name in objects else data[name].to_frame() for name in data.columns}
        yield {
            name: _given_column(name, values) if name in objects else joined(list(blocks_of(values)))[name]
            for name, values in data.items()
        }
        return
    if hasattr(data, "__arrow_c_stream__"):
        try:
            stream = data.__arrow_c_stream__()
        except Exception as error:  # pandas uses pyarrow here, which refuses columns of mixed types
            if not hasattr(data, "items"):
                if isinstance(error, (ValueError, TypeError, ImportError)):
                    raise
                raise TypeError(f"the data gives no Arrow stream: {error}") from error
            data = _by_name(data)
    if stream is not None:
        yield from arrow_blocks(stream)
    elif isinstance(data, Mapping):
        block = {str(name): _given_column(str(name), value) for name, value in data.items()}
        if len(block) < len(data):
            raise ValueError("two columns have the same name, once as a text and once as another key")
        sizes = {name: column.rows() for name, column in block.items()}
        if len(set(sizes.values())) > 1:
            raise ValueError(f"the columns of a batch have different numbers of rows: {sizes}")
        yield block
    elif isinstance(data, (str, bytes)) or not hasattr(data, "__iter__"):
        raise TypeError(
            f"an object of type {type(data).__name__} is not data: what has __arrow_c_stream__, a mapping of columns, "
            "and an iterable of these are" + ("; collect() it first" if hasattr(data, "collect") else "")
        )
    else:
        for batch in data:
            yield from blocks_of(batch)
