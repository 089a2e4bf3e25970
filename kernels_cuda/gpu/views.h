// gpu/views.h - descriptions of tables, features and a batch for device code: plain structs that are kernel arguments
// or are in device memory. The host fills them; pointers are to device memory.
#pragma once

#include <cstdint>

namespace tessera::gpu {

// The storage type of rows, outputs and gradients.
enum class Storage : int32_t { kFloat32, kFloat16, kBFloat16 };
inline int64_t bytes_of(Storage storage) { return storage == Storage::kFloat32 ? 4 : 2; }

// int32 or int64 numbers.
struct Indices {
  const void* data;
  bool wide;
};

// One table. Its rows have the keys [first_key, first_key + rows) among those of all tables of the instance.
struct TableView {
  void* weights;    // address of row 0
  float* elements;  // states with a value per element: state k of row r at elements + r * element_stride + k * dim
  float* per_row;   // states with a value per row: state k of row r at per_row + r * row_states + k
  int64_t rows;
  int64_t first_key;
  int64_t row_stride;      // elements from row to row
  int64_t element_stride;  // floats from row to row
  int32_t row_states;
  int32_t dim;
  int32_t aligned;  // rows and their states can be read in vectors of four
  int32_t reserved;
};

// One feature's bags (tsr_lookup_feature), and their place among the bags of all features.
struct FeatureView {
  int64_t bags;
  int64_t first_offset;
  int64_t output_offset;
  int64_t output_stride;
  int64_t first_bag;    // bags of earlier features
  int64_t first_block;  // blocks of the lookup for earlier features
  int32_t table;
  int32_t pooling;
  int32_t aligned;  // its output rows can be written, and their gradients read, in vectors of four
  int32_t reserved;
};

struct BatchView {
  const TableView* tables;
  const FeatureView* features;
  int32_t num_tables;
  int32_t num_features;
  int64_t bags;  // bags of all features
  Indices ids;
  Indices offsets;
  const float* weights;  // NULL means all 1
};

}  // namespace tessera::gpu
