"""Takes and returns arrays: NumPy's, and objects with DLPack or the buffer protocol. Contiguous ones are not copied."""

from __future__ import annotations

import ctypes as c
import functools
import struct
from typing import Any

import numpy as np

from ._library import DLTensor, InvalidArgument, ManagedTensor

_KINDS = {"f": 2, "i": 0, "u": 1}
_MOST_DIMENSIONS = 6
# Functions that pack a DLTensor followed by its shape, indexed by the number of dimensions.
_packers = [struct.Struct(f"QiiiBBHQQQ{n}q").pack_into for n in range(_MOST_DIMENSIONS + 1)]
_of_buffer, _address_of = c.c_char.from_buffer, c.addressof
_dtypes: dict[Any, tuple[int, int]] = {}  # NumPy dtype -> DLPack's type code and bits


def _dtype_code(dtype: np.dtype) -> tuple[int, int]:
    code = _dtypes.get(dtype)
    if code is None:
        if dtype.kind not in _KINDS or not dtype.isnative:
            raise InvalidArgument(f"an array of {dtype} is not taken: float, int and uint of 8 to 64 bits are")
        code = _dtypes[dtype] = (_KINDS[dtype.kind], dtype.itemsize * 8)
    return code


def as_array(value: Any, name: str) -> np.ndarray:
    """Returns a NumPy array, over the same memory if that is in host memory, row-major and needs no conversion."""
    if type(value) is np.ndarray:
        return value if value.flags.c_contiguous else np.ascontiguousarray(value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise InvalidArgument(f"some {name} are masked, and masked values are not taken: leave them out, or fill them")
    if hasattr(value, "__dlpack_device__"):
        device = value.__dlpack_device__()[0]
        if int(device) != 1:
            raise InvalidArgument(f"{name} is on a device (DLPack type {int(device)}): bring it to the CPU first")
        if hasattr(value, "__array__"):
            return np.ascontiguousarray(np.asarray(value))
        return np.ascontiguousarray(np.from_dlpack(value))
    return np.ascontiguousarray(value)


def copied_array(value: Any, name: str) -> np.ndarray:
    """Returns an array like ``as_array``, in memory that the caller cannot change."""
    return as_array(value, name).copy()


def address_of(array: np.ndarray) -> int:
    """Returns the address of an array's memory."""
    try:
        return _address_of(_of_buffer(array))  # takes a fifth of the time of array.ctypes.data
    except (TypeError, ValueError):  # the array is empty, or not writable
        return array.ctypes.data


def output_array(out: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns float32 memory for a result: the caller's, which the library checks, or new memory."""
    if out is None:
        return np.empty(shape, np.float32)
    if not (isinstance(out, np.ndarray) and out.flags.c_contiguous and out.flags.writeable):
        raise InvalidArgument("out must be a writable, contiguous NumPy array")
    return out


class Tensor:
    """A DLTensor that is filled again for each array. The library borrows it for one call."""

    __slots__ = ("address", "_raw", "_shape_address")

    def __init__(self, array: np.ndarray | None = None) -> None:
        self._raw = bytearray(c.sizeof(DLTensor) + 8 * _MOST_DIMENSIONS)
        self.address = _address_of(_of_buffer(self._raw))
        self._shape_address = self.address + c.sizeof(DLTensor)
        if array is not None:
            self.set(array)

    def set(self, array: np.ndarray) -> int:
        """Describes ``array``, which the caller keeps alive. Returns the address for the library."""
        code, bits = _dtypes.get(array.dtype) or _dtype_code(array.dtype)
        shape = array.shape
        ndim = len(shape)
        if ndim > _MOST_DIMENSIONS:
            raise InvalidArgument(f"an array has at most {_MOST_DIMENSIONS} dimensions here, not {ndim}")
        _packers[ndim](self._raw, 0, address_of(array), 1, 0, ndim, code, bits, 1, self._shape_address, 0, 0, *shape)
        return self.address


class _Owned:
    """Calls a tensor's deleter when the last array over its memory is gone."""

    def __init__(self, address: int) -> None:
        self._address = address
        self.tensor = ManagedTensor.from_address(address)

    def __del__(self) -> None:
        self.tensor.deleter(self._address)


# NumPy's types of views, by DLPack's type code and bits. NumPy has no bfloat16, so a view shows its bits as uint16.
_VIEWED = {(2, 32): np.dtype(np.float32), (2, 16): np.dtype(np.float16), (4, 16): np.dtype(np.uint16)}


def owned_view(address: int) -> np.ndarray:
    """Returns an array over the memory of the library's managed tensor at this address, and keeps the tensor alive."""
    owner = _Owned(address)
    tensor = owner.tensor.tensor
    dtype = _VIEWED[tensor.code, tensor.bits]
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(dtype.itemsize * stride for stride in tensor.strides[: tensor.ndim])
    if 0 in shape:
        return np.empty(shape, dtype)
    size = dtype.itemsize + sum((length - 1) * stride for length, stride in zip(shape, strides))
    memory = (c.c_char * size).from_address(tensor.data)
    memory.owner = owner
    return np.ndarray(shape, dtype, memory, strides=strides)


@functools.lru_cache(maxsize=256)
def _bytes_type(size: int) -> Any:
    """Returns a type of ctypes arrays. It is cached, because making one takes longer than making a view."""
    return c.c_char * size


def view_of(tensor: DLTensor, owner: object) -> np.ndarray:
    """Returns a float32 array over the library's memory, which ``owner`` keeps alive."""
    shape = tensor.shape[: tensor.ndim]
    size = 4
    for length in shape:
        size *= length
    if size == 0:
        return np.empty(shape, np.float32)
    memory = _bytes_type(size).from_address(tensor.data)
    memory.owner = owner
    return np.ndarray(shape, np.float32, memory)
