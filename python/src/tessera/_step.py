"""The result of a collection's forward, and a rank's shard of a table."""

from __future__ import annotations

import ctypes as c
from typing import TYPE_CHECKING, Any, Dict, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from . import _library as _l
from ._arrays import Tensor, view_of

if TYPE_CHECKING:
    from ._collections import Collection
    from ._runtime import ProcessGroup

_lib = _l.lib


class Shard(NamedTuple):
    """A rectangle of a table that this rank holds."""

    index: int  # for Collection.read_shard
    table: str
    rows: int
    cols: int
    row: int  # the first row; for routed rows, use Collection.shard_ids
    col: int
    states: Tuple[str, ...]  # names of the optimizer's states: "momentum1", ...


def next_rows(
    group: ProcessGroup, handle: _l.Handle, shard: Shard, weights: np.ndarray, states: Dict[str, np.ndarray]
) -> Iterator[Tuple[np.ndarray, np.ndarray, Dict[str, np.ndarray]]]:
    """Yields the rows of a shard with their ids, in blocks of as many as fit in ``weights`` and ``states``."""
    cursor, count, ids = c.c_uint64(), c.c_int64(), np.empty(len(weights), np.int64)
    tensors = [Tensor(array) for array in (ids, weights, *states.values())]
    pointers = (c.c_void_p * max(1, len(states)))(*[tensor.address for tensor in tensors[2:]])
    while True:
        group._call(
            _lib.tsr_shard_next_rows, handle.value, shard.index, c.addressof(cursor), tensors[0].address,
            tensors[1].address, c.addressof(pointers), len(states), c.addressof(count),
        )  # fmt: skip
        n = count.value
        if n == 0:
            return
        yield ids[:n].copy(), weights[:n].copy(), {name: state[:n].copy() for name, state in states.items()}


class Step:
    """The result of a forward, with the data that its backward needs. Its memory is freed with it and its outputs.

    output: float32 ``[samples, width]``, this rank's pooled rows, in the order of ``Collection.outputs``. It is a view
    of the step's memory, and you may write to it. It is None for sequences. outputs: for sequences, name -> float32
    ``[ids of the feature, dim]``, in the order of the ids. all_finished: True if every rank said ``finished``.
    """

    __slots__ = ("output", "outputs", "all_finished", "any_finished", "_collection", "_handle", "_inputs")

    def __init__(self, collection: Collection, handle: _l.Handle, inputs: Tuple[Any, ...], finished: bool) -> None:
        self._collection = collection
        self._handle = handle
        self._inputs = inputs  # backward reads their memory again
        self.output: Optional[np.ndarray] = None
        self.outputs: Dict[str, np.ndarray] = {}
        view = _l.DLTensor()
        if collection.kind == "bags":
            if _lib.tsr_step_output(handle.value, 0, c.addressof(view), None):
                _l.call("step_output", handle.value, 0, c.byref(view))  # raises the error
            self.output = view_of(view, handle)
        else:
            for i, name in enumerate(collection.outputs):
                _l.call("step_output", handle.value, i, c.byref(view))
                self.outputs[name] = view_of(view, handle)
        self.all_finished = self.any_finished = False
        if finished:
            info = _l.StepInfo()
            _l.call("step_describe", handle.value, c.byref(info))
            self.all_finished, self.any_finished = bool(info.all_finished), bool(info.any_finished)

    def backward(self, grad: Any) -> None:
        """Updates the tables by their optimizers. Call it at most once for each step. Collective.

        grad: the gradient of this rank's loss, float32, shaped like ``output``. For sequences it is a dict by output
        name; a missing name has gradient 0. Gradients are averaged over ranks. Raises ``InvalidArgument`` for another
        shape or dtype."""
        self._collection._backward(self, grad)
        self._inputs = ()
