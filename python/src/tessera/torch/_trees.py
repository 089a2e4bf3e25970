"""Registers the jagged classes as pytrees, so that torch.utils.data, torch.export and tree_map see their tensors."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

from torch import Tensor
from torch.utils._pytree import SequenceKey, register_pytree_node

from ._keyed import KeyedTensor
from ._sparse import JaggedTensor, KeyedJaggedTensor


def _present(parts: Sequence[Optional[Tensor]]) -> Tuple[List[Tensor], List[int]]:
    """Returns the tensors that are not None, and their indices: pytrees would treat None as a leaf."""
    return [p for p in parts if p is not None], [i for i, p in enumerate(parts) if p is not None]


def _placed(tensors: Sequence[Any], places: Sequence[int], count: int) -> List[Any]:
    out: List[Any] = [None] * count
    for tensor, place in zip(tensors, places):
        out[place] = tensor
    return out


def _flat_jagged(of: JaggedTensor) -> Tuple[List[Tensor], Any]:
    return _present(of._parts_or_none())


def _jagged_of(parts: Any, places: Any) -> JaggedTensor:
    return JaggedTensor(*_placed(parts, places, 4))


def _flat_keyed(of: KeyedJaggedTensor) -> Tuple[List[Tensor], Any]:
    inverse = of._inverse_indices
    parts, places = _present([*of._parts_or_none(), None if inverse is None else inverse[1]])
    keys = None if inverse is None else inverse[0]
    return parts, [places, of._keys, of._stride, of._stride_per_key_per_rank, keys]


def _keyed_of(parts: Any, context: Any) -> KeyedJaggedTensor:
    places, keys, stride, per_rank, inverse_keys = context
    *four, inverse = _placed(parts, places, 5)
    both = None if inverse_keys is None else (inverse_keys, inverse)
    return KeyedJaggedTensor(list(keys), *four, stride, per_rank, inverse_indices=both)


def _rows_of(parts: Any, context: Any) -> KeyedTensor:
    keys, lengths, dim = context
    return KeyedTensor(list(keys), list(lengths), parts[0], dim)


def register() -> None:
    """Registers the classes. ``import tessera.torch`` calls it."""

    def known(kind: type, flat: Callable, made: Callable) -> None:
        def with_keys(of: Any) -> Tuple[List[Any], Any]:
            parts, context = flat(of)
            return [(SequenceKey(i), part) for i, part in enumerate(parts)], context

        register_pytree_node(kind, flat, made, serialized_type_name=f"tessera.torch.{kind.__name__}",
                             flatten_with_keys_fn=with_keys)  # fmt: skip

    known(JaggedTensor, _flat_jagged, _jagged_of)
    known(KeyedJaggedTensor, _flat_keyed, _keyed_of)
    known(KeyedTensor, lambda t: ([t._values], [t._keys, t._length_per_key, t._key_dim]), _rows_of)

