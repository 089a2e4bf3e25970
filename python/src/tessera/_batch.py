"""Batches in the library's form, and quantized collections, which are used with nothing but batches."""

from __future__ import annotations

import ctypes as c
import struct
import threading
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _check, _library as _l
from ._arrays import Tensor, as_array, copied_array, output_array

_pack = struct.Struct("II7QiiQ").pack_into  # tsr_batch


_WHOLE = frozenset((np.dtype(np.int64), np.dtype(np.int32)))


def _check_whole(name: str, array: np.ndarray) -> None:
    if array.dtype not in _WHOLE:
        raise _l.InvalidArgument(f"{name} must be int32 or int64, not {array.dtype}")


class Batch:
    """A tsr_batch that is filled again for each call. ``address`` is its address, for the library."""

    __slots__ = ("address", "_raw", "_features", "_values", "_lengths", "_offsets", "_weights", "_inverse", "_weighted")

    def __init__(self, features: Sequence[str], is_weighted: bool) -> None:
        self._weighted = is_weighted
        self._raw = bytearray(c.sizeof(_l.Batch))
        self.address = c.addressof(c.c_char.from_buffer(self._raw))
        self._features = len(features)
        self._values, self._lengths, self._offsets, self._weights, self._inverse = (Tensor() for _ in range(5))

    def set(
        self,
        values: Any,
        lengths: Any = None,
        offsets: Any = None,
        weights: Any = None,
        keys: Optional[Sequence[str]] = None,
        strides: Optional[Sequence[int]] = None,
        inverse: Any = None,
        finished: bool = False,
        copy: bool = False,
    ) -> Tuple[Any, ...]:
        """Takes the arguments of ``Collection.forward``. Returns the objects that the struct points to; keep them alive
        for as long as the struct is in use. copy: the struct points to copies of the arrays."""
        if lengths is None and offsets is None:
            raise _l.InvalidArgument("a batch needs lengths or offsets")
        if lengths is not None and offsets is not None:
            raise _l.InvalidArgument("a batch has lengths or offsets, not both")
        if weights is not None and not self._weighted:
            raise _l.InvalidArgument(
                "this collection is not weighted: is_weighted=True lets it use weights; or leave them out"
            )
        if type(finished) is not bool:
            _check.truth(finished, "finished")
        if keys is not None:
            keys = _check.texts(keys, "keys")
            if len(set(keys)) < len(keys):
                twice = next(key for key in keys if list(keys).count(key) > 1)
                raise _l.InvalidArgument(f'the batch has key "{twice}" more than once: give each key once')
        taken = copied_array if copy else as_array
        num_keys = self._features if keys is None else len(keys)
        at_lengths = at_offsets = at_weights = at_strides = at_inverse = at_keys = 0
        values = taken(values, "values")
        if not values.size and values.dtype == np.float64:  # an empty list
            values = values.astype(np.int64)
        _check_whole("ids", values)
        if values.ndim != 1:
            raise _l.InvalidArgument(f"ids must be [n], all samples one after the other, not {list(values.shape)}")
        if lengths is not None:
            lengths = taken(lengths, "lengths")
            _check_whole("lengths", lengths)
            if lengths.ndim > 1:  # [keys, samples]
                lengths = lengths.reshape(-1)
            at_lengths = self._lengths.set(lengths)
        if offsets is not None:
            offsets = taken(offsets, "offsets")
            _check_whole("offsets", offsets)
            if offsets.size and offsets.flat[0] != 0:
                raise _l.InvalidArgument(
                    f"offsets begin at {offsets.flat[0]}: they begin at 0, and end with the number of ids"
                )
            at_offsets = self._offsets.set(offsets)
        if weights is not None:
            weights = taken(weights, "weights")
            at_weights = self._weights.set(weights)
        if strides is not None:
            if len(strides) != num_keys:
                raise _l.InvalidArgument(f"there are {len(strides)} strides for {num_keys} keys")
            strides = (c.c_int64 * num_keys)(*strides)
            at_strides = c.addressof(strides)
        if inverse is not None:
            inverse = taken(inverse, "inverse")
            at_inverse = self._inverse.set(inverse)
        if keys is not None:
            keys = _l.texts(list(keys))
            at_keys = c.addressof(keys)
        _pack(
            self._raw, 0, len(self._raw), num_keys, at_keys, self._values.set(values), at_lengths, at_offsets,
            at_weights, at_strides, at_inverse, bool(finished), 0, 0,
        )  # fmt: skip
        return values, lengths, offsets, weights, strides, inverse, keys

    def refuse(self, error: Exception) -> object:
        """Puts the reason why there is no batch in its place. Keep the returned object alive during the call."""
        why = c.create_string_buffer(str(error).encode())
        _pack(self._raw, 0, len(self._raw), *(0,) * 10, c.addressof(why))
        return why

    def samples(self, inputs: Tuple[Any, ...]) -> int:
        """Returns the number of samples in ``inputs``, a result of ``set``."""
        _, lengths, offsets, _, _, inverse, keys = inputs
        if inverse is not None:
            return inverse.shape[-1]
        bags = lengths.size if lengths is not None else offsets.size - 1
        return bags // max(1, self._features if keys is None else len(keys))


class QuantCollection:
    """Tables with quantized rows, from ``Collection.quantize``. All rows are on this rank, so no call is collective.
    Threads take turns.

    kind: "bags" or "sequences". features: the features whose ids a batch has. outputs: name -> dim, in the order of the
    collection. bytes: the memory of all rows.
    """

    def __init__(
        self, handle: _l.Handle, kind: str, features: List[str], outputs: Mapping[str, int], is_weighted: bool
    ) -> None:
        self._handle, self.kind = handle, kind
        self.features = list(features)
        self.outputs: Dict[str, int] = dict(outputs)
        self.width = sum(self.outputs.values())
        size = c.c_int64()
        _l.call("quant_collection_bytes", handle.value, c.byref(size))
        self.bytes: int = size.value
        self._batch, self._out = Batch(self.features, is_weighted), Tensor()
        self._used = threading.Lock()

    def lookup(self, values: Any, lengths: Any = None, *, out: Optional[np.ndarray] = None, **batch: Any) -> np.ndarray:
        """Returns the pooled rows, float32 ``[samples, width]``, in new memory or in ``out``. The arguments are as in
        ``Collection.forward``, without strides. Only for bags."""
        if self.kind != "bags":
            raise _l.Unimplemented("sequences have an output for each feature: use sequences()")
        with self._used:
            inputs = self._batch.set(values, lengths, **batch)
            out = output_array(out, (self._batch.samples(inputs), self.width))
            _l.call("quant_collection_forward", self._handle.value, self._batch.address, self._out.set(out))
            return out

    def sequences(self, values: Any, lengths: Any, *, keys: Optional[Sequence[str]] = None) -> Dict[str, np.ndarray]:
        """Returns a row for each id, by output name: float32 ``[ids of the feature, dim]``, in the order of the ids.
        Only for sequences."""
        if self.kind != "sequences":
            raise _l.Unimplemented("bags have one output: use lookup()")
        with self._used:
            inputs = self._batch.set(values, lengths, keys=keys)
            names = list(self.features if keys is None else keys)
            counts = np.asarray(inputs[1]).reshape(len(names), -1).sum(1) if names else []
            ids = dict(zip(names, counts))
            missing = [name for name in self.outputs if name.split("@")[0] not in ids]
            if missing:
                raise _l.NotFound(f'the batch has no key "{missing[0]}"; it has {", ".join(names)}')
            out = {n: np.empty((int(ids[n.split("@")[0]]), dim), np.float32) for n, dim in self.outputs.items()}
            tensors = [Tensor(rows) for rows in out.values()]
            addresses = (c.c_void_p * max(1, len(tensors)))(*[tensor.address for tensor in tensors])
            _l.call(
                "quant_collection_sequences", self._handle.value, self._batch.address, c.addressof(addresses),
                len(tensors),
            )  # fmt: skip
            return out
