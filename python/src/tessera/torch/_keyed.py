"""KeyedTensor with TorchRec's names and semantics, over one plain tensor."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

_grad_enabled = torch.is_grad_enabled  # a faster look-up of the name, which each key needs


def _in_graph() -> bool:
    """True if PyTorch compiles, traces or transforms what is called."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active()


class _Parts(torch.autograd.Function):
    """``torch.split`` with a backward that copies nothing if the gradients are parts of one tensor. They are if the
    program concatenated the parts in their order."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, lengths: List[int], dim: int) -> Tuple[Tensor, ...]:
        """Returns the parts."""
        ctx.set_materialize_grads(False)
        ctx.whole = values.shape, lengths, dim
        return torch.split(values, lengths, dim)

    @staticmethod
    def backward(ctx: Any, *grads: Optional[Tensor]) -> Tuple[Optional[Tensor], None, None]:
        """Returns the gradient of the values."""
        shape, lengths, dim = ctx.whole
        if not torch.is_grad_enabled():
            whole = _beside(grads, shape, lengths, dim)
            if whole is not None:
                return whole, None, None
        some = next((grad for grad in grads if grad is not None), None)
        if some is None:
            return None, None, None
        of_part = list(shape)
        for i, grad in enumerate(grads):
            if grad is None:
                of_part[dim] = lengths[i]
                grads = (*grads[:i], some.new_zeros(of_part), *grads[i + 1 :])
        return torch.cat(grads, dim), None, None  # type: ignore[arg-type]


def _beside(grads: Sequence[Optional[Tensor]], shape: Sequence[int], lengths: List[int], dim: int) -> Optional[Tensor]:
    """Returns the tensor whose parts these are, or None if they are not consecutive in the memory of one tensor."""
    first = grads[0] if grads else None
    if first is None or type(first) is not Tensor or first.layout is not torch.strided or first.is_neg():
        return None
    strides, address = first.stride(), first.data_ptr()
    width = first.element_size() * strides[dim]
    for grad, length in zip(grads, lengths):
        if grad is None or grad.data_ptr() != address or grad.stride() != strides:
            return None
        address += width * length
    last = sum((n - 1) * stride for n, stride in zip(shape, strides)) + first.storage_offset()
    if 0 in shape or (last + 1) * first.element_size() > first.untyped_storage().nbytes():
        return None
    return first.as_strided(shape, strides)


class KeyedTensor:
    """Dense rows of several keys side by side: values ``[samples, sum of length_per_key]``."""

    def __init__(
        self,
        keys: List[str],
        length_per_key: List[int],
        values: Tensor,
        key_dim: int = 1,
        offset_per_key: Optional[List[int]] = None,
        index_per_key: Optional[Dict[str, int]] = None,
    ) -> None:
        """offset_per_key and index_per_key are not read, because they follow from the other arguments."""
        self._keys, self._length_per_key, self._values, self._key_dim = keys, length_per_key, values, key_dim
        self._places: Optional[Dict[str, Tuple[int, int]]] = None  # the first column and the width of each key
        self._parts: Optional[Dict[str, Tensor]] = None  # of the values when they had version _parts_version
        self._parts_version = 0

    def wait(self) -> KeyedTensor:
        """Returns this object: the lookup is done. TorchRec's programs call it."""
        return self

    @staticmethod
    def from_tensor_list(keys: List[str], tensors: List[Tensor], key_dim: int = 1, cat_dim: int = 1) -> KeyedTensor:
        """Joins tensors, one for each key, side by side."""
        return KeyedTensor(keys, [t.shape[key_dim] for t in tensors], torch.cat(tensors, dim=cat_dim), key_dim)

    def keys(self) -> List[str]:
        """The keys, in order."""
        return self._keys

    def values(self) -> Tensor:
        """The tensor of all keys."""
        return self._values

    def size_in_bytes(self) -> int:
        """The size of the values."""
        return self._values.element_size() * self._values.numel()

    def key_dim(self) -> int:
        """The dimension along which keys are side by side."""
        return self._key_dim

    def length_per_key(self) -> List[int]:
        """The width of each key."""
        return self._length_per_key

    def offset_per_key(self) -> List[int]:
        """The first column of each key, and the end of the last one."""
        out = [0]
        for length in self._length_per_key:
            out.append(out[-1] + length)
        return out

    def device(self) -> torch.device:
        """The device of the values."""
        return self._values.device

    def record_stream(self, stream: Any) -> None:
        """Calls ``record_stream`` of the values; on the CPU that does nothing."""
        self._values.record_stream(stream)

    def to(self, device: Any, non_blocking: bool = False) -> KeyedTensor:
        """A copy on a device."""
        moved = self._values.to(device, non_blocking=non_blocking)
        return KeyedTensor(self._keys, self._length_per_key, moved, self._key_dim)

    def __getitem__(self, key: str) -> Tensor:
        parts = self._parts
        if parts is None or self._parts_version != self._values._version or not _grad_enabled():
            parts = self._parts_with_gradient()
        if parts is not None and key in parts:
            return parts[key]
        if self._places is None:
            self._places = dict(zip(self._keys, zip(self.offset_per_key(), self._length_per_key)))
        if key not in self._places:
            raise KeyError(f"there is no key {key}; there are {', '.join(self._keys)}")
        return self._values.narrow(self._key_dim, *self._places[key])

    def _parts_with_gradient(self) -> Optional[Dict[str, Tensor]]:
        """Returns the part of each key if a backward may follow, otherwise None. All keys share one autograd function,
        because the backward of each slice would make and add a gradient of the size of all keys."""
        values = self._values
        if not (isinstance(values, Tensor) and values.requires_grad and torch.is_grad_enabled()):
            return None
        if _in_graph() or sum(self._length_per_key) != values.shape[self._key_dim]:
            return None
        parts = _Parts.apply(values, self._length_per_key, self._key_dim)
        self._parts, self._parts_version = dict(zip(self._keys, parts)), values._version
        return self._parts

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_parts": None}

    def to_dict(self) -> Dict[str, Tensor]:
        """Returns the tensor of each key."""
        return dict(zip(self._keys, torch.split(self._values, self._length_per_key, dim=self._key_dim)))

    @staticmethod
    def regroup(keyed_tensors: List[KeyedTensor], groups: List[List[str]]) -> List[Tensor]:
        """Regroups the keys of several KeyedTensors. Returns a tensor for each group. If several have a key, the last
        one's tensor is used."""
        parts: Dict[str, Tensor] = {}
        for keyed in keyed_tensors:
            parts.update(keyed.to_dict())
        unknown = [key for group in groups for key in group if key not in parts]
        if unknown:
            raise KeyError(f"there is no key {unknown[0]}; there are {', '.join(parts)}")
        dim = keyed_tensors[0].key_dim() if keyed_tensors else 1
        return [torch.cat([parts[key] for key in group], dim=dim) for group in groups]

    @staticmethod
    def regroup_as_dict(
        keyed_tensors: List[KeyedTensor], groups: List[List[str]], keys: List[str]
    ) -> Dict[str, Tensor]:
        """Does the same as ``regroup``, and returns a dict with a key for each group."""
        if len(groups) != len(keys):
            raise ValueError(f"there are {len(groups)} groups and {len(keys)} keys: give a key for each group")
        return dict(zip(keys, KeyedTensor.regroup(keyed_tensors, groups)))

    def __repr__(self) -> str:
        rows = ",\n".join(f'    "{key}": {value.tolist()}' for key, value in self.to_dict().items())
        return f"KeyedTensor({{\n{rows}\n}})\n"
