// gpu/columns.h - device code: how the threads of a warp share the columns of rows. A group of lanes, a power of two
// that divides the warp, has a row or a chunk of its columns. Each lane has kLaneColumns of a chunk.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"

namespace tessera::gpu {

constexpr int32_t kLaneColumns = 4;
constexpr int32_t kBlockThreads = 256;

// The number of lanes for a row of `dim` columns.
GPU_HOST_DEVICE int32_t group_lanes(int32_t dim) {
  int32_t lanes = 1;
  while (lanes < warp_size() && lanes * kLaneColumns < dim) lanes *= 2;
  return lanes;
}
GPU_HOST_DEVICE int32_t chunks_of(int32_t dim, int32_t lanes) {
  return (dim + lanes * kLaneColumns - 1) / (lanes * kLaneColumns);
}

GPU_DEVICE int64_t index_at(const Indices& indices, int64_t i) {
  return indices.wide ? static_cast<const int64_t*>(indices.data)[i] : static_cast<const int32_t*>(indices.data)[i];
}
// out[i] = indices[first + i] for i < count. The loads are started together.
template <int32_t kMost>
GPU_DEVICE void load_indices(const Indices& indices, int64_t first, int32_t count, int64_t (&out)[kMost]) {
  if (indices.wide) {
    GPU_UNROLL
    for (int32_t i = 0; i < kMost; ++i) {
      if (i < count) out[i] = static_cast<const int64_t*>(indices.data)[first + i];
    }
  } else {
    GPU_UNROLL
    for (int32_t i = 0; i < kMost; ++i) {
      if (i < count) out[i] = static_cast<const int32_t*>(indices.data)[first + i];
    }
  }
}

// Returns the last i in [0, n) with first(i) <= value. first() ascends, and first(0) <= value.
template <class First>
GPU_DEVICE int32_t last_at_or_below(int32_t n, int64_t value, First first) {
  int32_t low = 0;
  int32_t high = n;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    if (first(middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The sum over a group's lanes, returned in all of them. All lanes of the warp call it.
GPU_DEVICE float group_sum(float value, int32_t lanes) {
  for (int32_t d = lanes / 2; d > 0; d /= 2) value += shfl_xor(value, d, lanes);
  return value;
}

template <class T>
GPU_DEVICE void to_floats(const Pack<T, kLaneColumns>& pack, float (&out)[kLaneColumns]) {
  const Pack<T, kLaneColumns> copy = pack;
  GPU_UNROLL
  for (int32_t i = 0; i < kLaneColumns; ++i) out[i] = to_float(copy.v[i]);
}

// One lane's columns of one chunk. With kVectors, which is for rows that can be read in vectors, these are four
// neighbouring columns, and either all or none of them are within the row. Otherwise the columns are as far apart as
// the group has lanes, so that the group's lanes read neighbours.
template <bool kVectors>
struct LaneColumns {
  int32_t first;
  int32_t step;
  int32_t dim;

  GPU_DEVICE LaneColumns(int32_t chunk, int32_t lane, int32_t lanes, int32_t row_dim)
      : first(chunk * lanes * kLaneColumns + (kVectors ? lane * kLaneColumns : lane)),
        step(kVectors ? 1 : lanes),
        dim(row_dim) {}
  GPU_DEVICE int32_t column(int32_t i) const { return first + i * step; }
  GPU_DEVICE bool has(int32_t i) const { return column(i) < dim; }
  GPU_DEVICE bool any() const { return first < dim; }

  // Reads this lane's columns of a row; 0 beyond its end. With kVectors, call it only if any().
  template <class T>
  GPU_DEVICE void load(const T* row, float (&out)[kLaneColumns]) const {
    if constexpr (kVectors) {
      to_floats(*reinterpret_cast<const Pack<T, kLaneColumns>*>(row + first), out);
    } else {
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) out[i] = has(i) ? to_float(row[column(i)]) : 0.0f;
    }
  }
  // Starts to copy these columns into the block's memory, for to_floats() after copies_wait(). With kVectors, call it
  // only if any().
  template <class T>
  GPU_DEVICE void copy(const T* row, Pack<T, kLaneColumns>& to) const {
    if constexpr (kVectors) {
      copy_to_block<sizeof(to)>(&to, row + first);
    } else {
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) to.v[i] = has(i) ? row[column(i)] : T{};
    }
  }
  // `vectors` says if this row can be written in vectors.
  template <class T>
  GPU_DEVICE void store(T* row, bool vectors, const float (&values)[kLaneColumns]) const {
    if (kVectors && vectors) {
      Pack<T, kLaneColumns> pack;
      GPU_UNROLL
      for (int32_t i = 0; i < kLaneColumns; ++i) pack.v[i] = from_float<T>(values[i]);
      *reinterpret_cast<Pack<T, kLaneColumns>*>(row + first) = pack;
      return;
    }
    GPU_UNROLL
    for (int32_t i = 0; i < kLaneColumns; ++i) {
      if (has(i)) row[column(i)] = from_float<T>(values[i]);
    }
  }
};

// Calls body(T{}) with the type of a storage.
template <class Body>
void with_storage(Storage storage, Body body) {
  switch (storage) {
    case Storage::kFloat32:
      return body(float{});
    case Storage::kFloat16:
      return body(Half{});
    case Storage::kBFloat16:
      return body(BFloat16{});
  }
}

}  // namespace tessera::gpu
