"""JaggedTensor and KeyedJaggedTensor with TorchRec's names and semantics, over plain tensors."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ._counterpart import lacks


def _offsets(lengths: Tensor) -> Tensor:
    out = torch.zeros(lengths.numel() + 1, dtype=lengths.dtype, device=lengths.device)
    torch.cumsum(lengths, 0, out=out[1:])
    return out


class _Jagged:
    """Rows of different length, given by lengths or offsets. The other one is computed when it is first needed."""

    def __init__(
        self, values: Tensor, weights: Optional[Tensor], lengths: Optional[Tensor], offsets: Optional[Tensor]
    ) -> None:
        self._values, self._weights, self._lengths, self._offsets = values, weights, lengths, offsets

    def values(self) -> Tensor:
        """The values of all rows, one row after the other."""
        return self._values

    def weights(self) -> Tensor:
        """The weights of the values. ``ValueError`` if there are none."""
        if self._weights is None:
            raise ValueError(f"this {type(self).__name__} has no weights")
        return self._weights

    def weights_or_none(self) -> Optional[Tensor]:
        """The weights of the values, or None."""
        return self._weights

    def lengths(self) -> Tensor:
        """The number of values of each row."""
        if self._lengths is None:
            self._lengths = torch.diff(self._offsets)
        return self._lengths

    def lengths_or_none(self) -> Optional[Tensor]:
        """Lengths if they have been given or made, or None."""
        return self._lengths

    def offsets(self) -> Tensor:
        """The start of each row, and the end of the last one."""
        if self._offsets is None:
            self._offsets = _offsets(self._lengths)
        return self._offsets

    def offsets_or_none(self) -> Optional[Tensor]:
        """Offsets if they have been given or made, or None."""
        return self._offsets

    def _parts_or_none(self) -> Tuple[Optional[Tensor], ...]:
        return self._values, self._weights, self._lengths, self._offsets

    def _parts(self) -> Iterator[Tensor]:
        return (t for t in self._parts_or_none() if t is not None)

    def size_in_bytes(self) -> int:
        """The size of its tensors, as far as they have been made."""
        return sum(t.element_size() * t.numel() for t in self._parts())

    def record_stream(self, stream: Any) -> None:
        """Calls record_stream of tensors on a GPU; those on the CPU need none."""
        for part in self._parts():
            part.record_stream(stream)


def _weights_of(parts: Sequence[_Jagged]) -> Optional[Tensor]:
    """The weights of all parts, or None if they have none."""
    weights = [part.weights_or_none() for part in parts]
    if all(w is None for w in weights):
        return None
    if any(w is None for w in weights):
        raise ValueError("cannot concatenate weighted and unweighted jagged tensors: give all of them weights, or none")
    return torch.cat(weights)  # type: ignore[arg-type]


def _nothing(
    is_weighted: bool,
    device: Optional[torch.device],
    values_dtype: Optional[torch.dtype],
    weights_dtype: Optional[torch.dtype],
    lengths_dtype: torch.dtype,
) -> Dict[str, Optional[Tensor]]:
    """Returns arguments for an object without rows."""
    return {
        "values": torch.empty(0, dtype=values_dtype, device=device),
        "weights": torch.empty(0, dtype=weights_dtype, device=device) if is_weighted else None,
        "lengths": torch.empty(0, dtype=lengths_dtype, device=device),
    }


@lacks("copy_", "empty_like", instead="make another one")
class JaggedTensor(_Jagged):
    """A batch of rows of different length: values ``[n]`` or ``[n, d]``; lengths ``[rows]``, or offsets ``[rows + 1]``;
    weights like values."""

    def __init__(
        self,
        values: Tensor,
        weights: Optional[Tensor] = None,
        lengths: Optional[Tensor] = None,
        offsets: Optional[Tensor] = None,
    ) -> None:
        if lengths is None and offsets is None:
            raise ValueError("a JaggedTensor needs lengths or offsets")
        super().__init__(values, weights, lengths, offsets)

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: Optional[torch.device] = None,
        values_dtype: Optional[torch.dtype] = None,
        weights_dtype: Optional[torch.dtype] = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> JaggedTensor:
        """A JaggedTensor of no rows."""
        return JaggedTensor(**_nothing(is_weighted, device, values_dtype, weights_dtype, lengths_dtype))

    @staticmethod
    def from_dense_lengths(values: Tensor, lengths: Tensor, weights: Optional[Tensor] = None) -> JaggedTensor:
        """Takes the first ``lengths[i]`` entries of row i of ``values`` ``[rows, n(, d)]``."""
        taken = torch.arange(values.shape[1], device=values.device)[None, :] < lengths[:, None]
        return JaggedTensor(values[taken], None if weights is None else weights[taken], lengths)

    @staticmethod
    def from_dense(values: List[Tensor], weights: Optional[List[Tensor]] = None) -> JaggedTensor:
        """Makes a JaggedTensor from one tensor for each row."""
        lengths = torch.tensor([len(v) for v in values], dtype=torch.int32)
        return JaggedTensor(torch.cat(values), None if weights is None else torch.cat(weights), lengths)

    def to_dense(self) -> List[Tensor]:
        """Returns a tensor for each row."""
        return list(torch.split(self._values, self.lengths().tolist()))

    def to_dense_weights(self) -> List[Tensor]:
        """Returns a tensor with the weights of each row."""
        return list(torch.split(self.weights(), self.lengths().tolist()))

    def to_padded_dense(self, desired_length: Optional[int] = None, padding_value: float = 0.0) -> Tensor:
        """Returns ``[rows, desired_length(, d)]``; longer rows keep their first entries. None: the length of the
        longest row."""
        return _padded(self._values, self.lengths(), desired_length, padding_value)

    def to_padded_dense_weights(self, desired_length: Optional[int] = None, padding_value: float = 0.0) -> Tensor:
        """Does ``to_padded_dense`` for the weights."""
        return _padded(self.weights(), self.lengths(), desired_length, padding_value)

    def to(self, device: Any, non_blocking: bool = False) -> JaggedTensor:
        """A copy on a device."""
        moved = [t if t is None else t.to(device, non_blocking=non_blocking) for t in vars(self).values()]
        return JaggedTensor(*moved)

    def device(self) -> torch.device:
        """The device of the values."""
        return self._values.device

    def __repr__(self) -> str:
        return f"JaggedTensor({{\n    {self._text('    ')}\n}})\n"

    def _text(self, indent: str) -> str:
        rows = [row.tolist() for row in self.to_dense()]
        if self._weights is None:
            return str(rows)
        weights = [row.tolist() for row in self.to_dense_weights()]
        return f'"values": {rows},\n{indent}"weights": {weights}'


def _padded(values: Tensor, lengths: Tensor, width: Optional[int], padding: float) -> Tensor:
    if width is None:
        width = int(lengths.max()) if lengths.numel() else 0
    out = values.new_full((lengths.numel(), width, *values.shape[1:]), padding)
    column = torch.arange(width)
    taken = column[None, :] < lengths[:, None]
    row_of = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    within = torch.arange(len(values)) - _offsets(lengths)[row_of]
    out[taken] = values[within < width]
    return out


@lacks("copy_", "empty_like", "clear_storage", instead="make another one")
@lacks("dist_init", "dist_labels", "dist_splits", "dist_tensors", instead="the library exchanges ids")
class KeyedJaggedTensor(_Jagged):
    """Several features of one batch, key-major: the rows of all samples for key 0, then for key 1, ...

    stride: the number of samples. stride_per_key_per_rank with inverse_indices: a different number of samples for each
    key.
    """

    def __init__(
        self,
        keys: Sequence[str],
        values: Tensor,
        weights: Optional[Tensor] = None,
        lengths: Optional[Tensor] = None,
        offsets: Optional[Tensor] = None,
        stride: Optional[int] = None,
        stride_per_key_per_rank: Optional[List[List[int]]] = None,
        stride_per_key: Optional[List[int]] = None,
        length_per_key: Optional[List[int]] = None,
        lengths_offset_per_key: Optional[List[int]] = None,
        offset_per_key: Optional[List[int]] = None,
        index_per_key: Optional[Dict[str, int]] = None,
        jt_dict: Optional[Dict[str, JaggedTensor]] = None,
        inverse_indices: Optional[Tuple[List[str], Tensor]] = None,
    ) -> None:
        """lengths_offset_per_key, offset_per_key, index_per_key and jt_dict are not read: they follow from the
        others."""
        self._keys = list(keys)
        if self._keys and lengths is None and offsets is None:
            raise ValueError("a KeyedJaggedTensor needs lengths or offsets")
        super().__init__(values, weights, lengths, offsets)
        self._strides = None if stride_per_key_per_rank is None else [sum(r) for r in stride_per_key_per_rank]
        if stride_per_key is not None and stride_per_key_per_rank is None:
            self._strides, stride_per_key_per_rank = list(stride_per_key), [[n] for n in stride_per_key]
        self._stride_per_key_per_rank = stride_per_key_per_rank
        self._inverse_indices = inverse_indices
        bags = 0 if not self._keys else lengths.numel() if lengths is not None else offsets.numel() - 1
        if stride is not None:
            self._stride = stride
        elif inverse_indices is not None:
            self._stride = inverse_indices[1].shape[-1]
        elif self._strides is not None:
            self._stride = max(self._strides, default=0)
        else:
            self._stride = bags // max(1, len(self._keys))
        self._length_per_key = None if length_per_key is None else list(length_per_key)
        if stride is not None and self._strides is None and not torch.compiler.is_compiling():
            if bags != stride * len(self._keys) and isinstance(bags, int):
                raise ValueError(f"there are {bags} lengths for {len(self._keys)} keys of {stride} samples (stride)")

    @staticmethod
    def empty(
        is_weighted: bool = False,
        device: Optional[torch.device] = None,
        values_dtype: Optional[torch.dtype] = None,
        weights_dtype: Optional[torch.dtype] = None,
        lengths_dtype: torch.dtype = torch.int32,
    ) -> KeyedJaggedTensor:
        """An empty tensor without keys."""
        return KeyedJaggedTensor([], **_nothing(is_weighted, device, values_dtype, weights_dtype, lengths_dtype))

    @staticmethod
    def from_lengths_sync(
        keys: Sequence[str], values: Tensor, lengths: Tensor, weights: Optional[Tensor] = None, **more: Any
    ) -> KeyedJaggedTensor:
        """A KeyedJaggedTensor of values and lengths."""
        return KeyedJaggedTensor(keys, values, weights, lengths=lengths, **more)

    @staticmethod
    def from_offsets_sync(
        keys: Sequence[str], values: Tensor, offsets: Tensor, weights: Optional[Tensor] = None, **more: Any
    ) -> KeyedJaggedTensor:
        """A KeyedJaggedTensor of values and offsets."""
        return KeyedJaggedTensor(keys, values, weights, offsets=offsets, **more)

    @staticmethod
    def from_jt_dict(jt_dict: Dict[str, JaggedTensor], force_variable_stride: bool = False) -> KeyedJaggedTensor:
        """A KeyedJaggedTensor of JaggedTensors by key. If they have different numbers of samples, or with
        force_variable_stride, it has a stride for each key."""
        parts = list(jt_dict.values())
        if not parts:
            return KeyedJaggedTensor.empty()
        samples = [p.lengths().numel() for p in parts]
        return KeyedJaggedTensor(
            list(jt_dict),
            torch.cat([p.values() for p in parts]),
            _weights_of(parts),
            lengths=torch.cat([p.lengths() for p in parts]),
            stride_per_key=samples if force_variable_stride or len(set(samples)) > 1 else None,
        )

    @staticmethod
    def concat(kjt_list: List[KeyedJaggedTensor]) -> KeyedJaggedTensor:
        """Joins the keys of several KeyedJaggedTensors of the same samples, one after the other."""
        if len({kjt.stride() for kjt in kjt_list}) > 1:
            raise ValueError(f"cannot concatenate KeyedJaggedTensors of strides {[k.stride() for k in kjt_list]}")
        per_rank, inverse = None, [kjt.inverse_indices_or_none() for kjt in kjt_list]
        if any(kjt.variable_stride_per_key() for kjt in kjt_list):
            if None in inverse and any(inverse):
                raise ValueError("cannot concatenate KeyedJaggedTensors of which only some have inverse indices")
            per_rank = [n for kjt in kjt_list
                        for n in kjt.stride_per_key_per_rank() or [[kjt.stride()]] * len(kjt.keys())]  # fmt: skip
        return KeyedJaggedTensor(
            [key for kjt in kjt_list for key in kjt.keys()],
            torch.cat([kjt.values() for kjt in kjt_list]),
            _weights_of(kjt_list),
            lengths=torch.cat([kjt.lengths() for kjt in kjt_list]),
            stride=kjt_list[0].stride() if kjt_list else None,
            stride_per_key_per_rank=per_rank,
            inverse_indices=([key for keys, _ in inverse for key in keys], torch.cat([at for _, at in inverse]))
            if per_rank and all(inverse) else None,
        )

    def keys(self) -> List[str]:
        """The keys, in order."""
        return self._keys

    def stride(self) -> int:
        """The number of samples."""
        return self._stride

    def stride_per_key(self) -> List[int]:
        """The number of samples of each key."""
        return self._strides if self._strides is not None else [self._stride] * len(self._keys)

    def stride_per_key_per_rank(self) -> List[List[int]]:
        """The number of samples of each key and rank; empty if all keys have the same."""
        return self._stride_per_key_per_rank or []

    def variable_stride_per_key(self) -> bool:
        """True if keys have different numbers of samples."""
        return self._strides is not None

    def inverse_indices(self) -> Tuple[List[str], Tensor]:
        """The keys, and ``[keys, samples]`` with the index of each sample among the samples of a key."""
        if self._inverse_indices is None:
            raise ValueError("this KeyedJaggedTensor has no inverse indices")
        return self._inverse_indices

    def inverse_indices_or_none(self) -> Optional[Tuple[List[str], Tensor]]:
        """``inverse_indices()``, or None if there are none."""
        return self._inverse_indices

    def length_per_key(self) -> List[int]:
        """The number of values of each key."""
        if self._length_per_key is None:
            parts = torch.split(self.lengths(), self.stride_per_key())
            self._length_per_key = [part.sum().item() for part in parts]
            if torch.compiler.is_compiling():
                for count in self._length_per_key:
                    torch._check(count >= 0)
        return self._length_per_key

    def offset_per_key(self) -> List[int]:
        """The start of each key's values, and the end of the last one's."""
        out = [0]
        for length in self.length_per_key():
            out.append(out[-1] + length)
        return out

    def length_per_key_or_none(self) -> Optional[List[int]]:
        """``length_per_key()`` if it has been made, or None."""
        return self._length_per_key

    def offset_per_key_or_none(self) -> Optional[List[int]]:
        """``offset_per_key()`` if lengths per key have been made, or None."""
        return None if self._length_per_key is None else self.offset_per_key()

    def lengths_offset_per_key(self) -> List[int]:
        """The start of each key's lengths, and the end of the last one's."""
        return [0, *itertools.accumulate(self.stride_per_key())]

    def index_per_key(self) -> Dict[str, int]:
        """The place of each key."""
        return {key: i for i, key in enumerate(self._keys)}

    def sync(self) -> KeyedJaggedTensor:
        """Computes the values that follow from its tensors, and returns this object."""
        self.length_per_key()
        return self

    def unsync(self) -> KeyedJaggedTensor:
        """Forgets the values that ``sync()`` computed, and returns this object."""
        self._length_per_key = None
        return self

    def flatten_lengths(self) -> KeyedJaggedTensor:
        """Returns the same batch with lengths of one dimension."""
        per_rank, lengths = self._stride_per_key_per_rank, self.lengths().reshape(-1)
        return KeyedJaggedTensor(self._keys, self._values, self._weights, lengths, None, self._stride, per_rank,
                                 inverse_indices=self._inverse_indices)  # fmt: skip

    def split(self, segments: List[int]) -> List[KeyedJaggedTensor]:
        """Splits it into parts of consecutive keys, with these numbers of keys."""
        out, first = [], 0
        for count in segments:
            out.append(self.permute(list(range(first, first + count))))
            first += count
        return out

    def permute(self, indices: Sequence[int], indices_tensor: Optional[Tensor] = None) -> KeyedJaggedTensor:
        """Returns the keys with these indices, in this order. indices_tensor: the same indices; it is not read."""
        bags = torch.split(self.lengths(), self.stride_per_key())
        values = torch.split(self._values, self.length_per_key())
        weights = None if self._weights is None else torch.split(self._weights, self.length_per_key())
        per_rank = self._stride_per_key_per_rank
        return KeyedJaggedTensor(
            [self._keys[i] for i in indices],
            torch.cat([values[i] for i in indices]) if indices else self._values[:0],
            None if weights is None else torch.cat([weights[i] for i in indices]) if indices else self._weights[:0],
            lengths=torch.cat([bags[i] for i in indices]) if indices else self.lengths()[:0],
            stride=self._stride,
            stride_per_key_per_rank=None if per_rank is None else [per_rank[i] for i in indices],
            inverse_indices=self._inverse_indices,
        )

    def __getitem__(self, key: str) -> JaggedTensor:
        if key not in self._keys:
            raise KeyError(f"there is no key {key}; there are {', '.join(self._keys)}")
        return self.to_dict()[key]

    def to_dict(self, compute_offsets: bool = True) -> Dict[str, JaggedTensor]:
        """Returns a JaggedTensor for each key. compute_offsets has no effect: offsets are computed when needed."""
        bags = torch.split(self.lengths(), self.stride_per_key())
        values = torch.split(self._values, self.length_per_key())
        weights = [None] * len(bags) if self._weights is None else torch.split(self._weights, self.length_per_key())
        return {key: JaggedTensor(v, w, b) for key, v, w, b in zip(self._keys, values, weights, bags)}

    def to(self, device: Any, non_blocking: bool = False, dtype: Optional[torch.dtype] = None) -> KeyedJaggedTensor:
        """A copy on a device. dtype: of the weights."""
        out = self._with(lambda t: t.to(device, non_blocking=non_blocking))
        if dtype is not None and out._weights is not None:
            out._weights = out._weights.to(dtype)
        return out

    def pin_memory(self) -> KeyedJaggedTensor:
        """Returns a copy in pinned memory, from which a GPU copies faster."""
        return self._with(Tensor.pin_memory)

    def _with(self, made: Callable[[Tensor], Tensor]) -> KeyedJaggedTensor:
        parts = [t if t is None else made(t) for t in (self._values, self._weights, self._lengths, self._offsets)]
        return KeyedJaggedTensor(self._keys, *parts, self._stride, self._stride_per_key_per_rank,
                                 inverse_indices=self._inverse_indices)  # fmt: skip

    def device(self) -> torch.device:
        """The device of the values."""
        return self._values.device

    def __repr__(self) -> str:
        texts = [(key, jt._text(" " * 8)) for key, jt in self.to_dict().items()]
        if self._weights is not None:
            texts = [(key, f"{{\n        {text}\n    }}") for key, text in texts]
        rows = ",\n".join(f'    "{key}": {text}' for key, text in texts)
        return f"KeyedJaggedTensor({{\n{rows}\n}})\n"
