/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* tessera/abi/tensor.h - tensors cross the boundary only as DLPack's DLTensor, borrowed for the call.
 *
 *   1. The caller describes memory that it owns with a DLTensor and hands a pointer to it to a function.
 *   2. The callee finds element 0 at data + byte_offset. The elements are compact and row-major, and strides may be
 *      NULL.
 *   3. When the call returns, the callee keeps neither the DLTensor nor its shape. If the call enqueued work on a
 *      stream, the memory stays valid until the stream has passed that work.
 *
 * DLPack 0.6 and 1.x have the same layout for the members used here. The assertions below check it.
 */
#ifndef TESSERA_ABI_TENSOR_H_
#define TESSERA_ABI_TENSOR_H_

#include <dlpack/dlpack.h>

#include "tessera/abi/base.h"

#ifdef __cplusplus
#define TSR_STATIC_ASSERT(what, text) static_assert(what, text)
#else
#define TSR_STATIC_ASSERT(what, text) _Static_assert(what, text)
#endif

TSR_STATIC_ASSERT(sizeof(DLDevice) == 8, "DLDevice is {int32 type, int32 id}");
TSR_STATIC_ASSERT(sizeof(DLDataType) == 4, "DLDataType is {uint8 code, uint8 bits, uint16 lanes}");
TSR_STATIC_ASSERT(sizeof(DLTensor) == 48, "DLTensor has 48 bytes");
TSR_STATIC_ASSERT(offsetof(DLTensor, data) == 0, "DLTensor::data");
TSR_STATIC_ASSERT(offsetof(DLTensor, device) == 8, "DLTensor::device");
TSR_STATIC_ASSERT(offsetof(DLTensor, ndim) == 16, "DLTensor::ndim");
TSR_STATIC_ASSERT(offsetof(DLTensor, dtype) == 20, "DLTensor::dtype");
TSR_STATIC_ASSERT(offsetof(DLTensor, shape) == 24, "DLTensor::shape");
TSR_STATIC_ASSERT(offsetof(DLTensor, strides) == 32, "DLTensor::strides");
TSR_STATIC_ASSERT(offsetof(DLTensor, byte_offset) == 40, "DLTensor::byte_offset");

#endif /* TESSERA_ABI_TENSOR_H_ */
