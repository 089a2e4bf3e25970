// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/plain_lookup.h - reads a lookup id by id, for kernels in host memory that start with plain loops.
//
// It takes float32 outputs in one tensor (no TSR_KERNEL_PLACES_ROWS), and refuses TSR_POOLING_MAX.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/sdk/kernel.h"

namespace tessera::sdk {
inline namespace v1 {

// Element i of ids or offsets, which are int32 or int64.
inline int64_t integer_at(const DLTensor& t, int64_t i) {
  return holds<int64_t>(t) ? data_as<int64_t>(t)[i] : data_as<int32_t>(t)[i];
}

// One id of one bag of a feature.
struct LookupEntry {
  int64_t position;  // among the lookup's ids
  int64_t row;       // the id
  int64_t place;     // first output element that the row is added to: the bag's, or the id's own without pooling
  float share;       // factor of the row: its weight, divided by `length`
  float length;      // number of ids in the bag for TSR_POOLING_MEAN, else 1
};

template <class Body>  // body(const LookupEntry&), in the order of positions
void for_each_entry(const tsr_lookup& lookup, const tsr_lookup_feature& f, Body body) {
  const int64_t first = f.bags == 0 ? 0 : integer_at(*lookup.offsets, f.first_offset);
  for (int64_t b = 0; b < f.bags; ++b) {
    const int64_t begin = integer_at(*lookup.offsets, f.first_offset + b);
    const int64_t end = integer_at(*lookup.offsets, f.first_offset + b + 1);
    for (int64_t p = begin; p < end; ++p) {
      const int64_t slot = f.pooling == TSR_POOLING_NONE ? p - first : b;
      const float weight = lookup.weights == nullptr ? 1 : data_as<float>(*lookup.weights)[p];
      const float length = f.pooling == TSR_POOLING_MEAN ? static_cast<float>(end - begin) : 1;
      body(LookupEntry{p, integer_at(*lookup.ids, p), f.output_offset + slot * f.output_stride, weight / length,
                       length});
    }
  }
}

// Writes zeros to all of a feature's output, also for bags without ids; entries are added later.
inline void clear_output(const tsr_lookup& lookup, const tsr_lookup_feature& f, int64_t dim, float* output) {
  if (f.pooling == TSR_POOLING_MAX) fail(TSR_UNIMPLEMENTED, "this kernel has no MAX pooling");
  int64_t rows = f.bags;
  if (f.pooling == TSR_POOLING_NONE && f.bags > 0)
    rows = integer_at(*lookup.offsets, f.first_offset + f.bags) - integer_at(*lookup.offsets, f.first_offset);
  for (int64_t i = 0; i < rows; ++i) std::fill_n(output + f.output_offset + i * f.output_stride, dim, 0.0f);
}

// Element d of the gradient at an entry's place in the output: scaled, then clamped to +-max_gradient unless that is 0
// (tsr_kernel_config::max_gradient). The row's gradient is this times the entry's share.
inline float gradient_at(const tsr_backward& args, const LookupEntry& e, int64_t d, float max_gradient) {
  const float g = data_as<float>(*args.grad_output)[e.place + d] * static_cast<float>(args.grad_scale);
  return max_gradient > 0 ? std::clamp(g, -max_gradient, max_gradient) : g;
}

}  // namespace v1
}  // namespace tessera::sdk
