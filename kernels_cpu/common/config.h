// The checked content of a tsr_kernel_config and a tsr_lookup, for both CPU kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "half.h"
#include "rounding.h"
#include "tessera/sdk/kernel.h"

namespace tessera_cpu {

namespace sdk = tessera::sdk;

// The storage type of rows, outputs and gradients.
enum class Storage { kFloat32, kFloat16, kBFloat16 };
// Throws Failure(TSR_UNIMPLEMENTED) for other types; `what` names the tensor.
Storage storage_of(DLDataType dtype, const char* what);
inline int64_t bytes_of(Storage storage) { return storage == Storage::kFloat32 ? 4 : 2; }

inline float load_value(Storage storage, const void* data, int64_t i) {
  if (storage == Storage::kFloat32) return static_cast<const float*>(data)[i];
  const uint16_t bits = static_cast<const uint16_t*>(data)[i];
  return storage == Storage::kFloat16 ? half_to_float(bits) : bfloat16_to_float(bits);
}
inline void store_value(Storage storage, void* data, int64_t i, float value) {
  if (storage == Storage::kFloat32) {
    static_cast<float*>(data)[i] = value;
  } else {
    static_cast<uint16_t*>(data)[i] = storage == Storage::kFloat16 ? float_to_half(value) : float_to_bfloat16(value);
  }
}

struct TableSpec {
  std::string name;
  int64_t rows;
  int64_t dim;
  Rounding rounding = {};  // how updated rows are rounded
};

struct Config {
  bool train = true;
  Storage weights = Storage::kFloat32;
  Storage output = Storage::kFloat32;
  std::vector<TableSpec> tables;
  sdk::OptimizerRef optimizer;
  float max_gradient = 0;  // 0: no clamp
};

// Throws Failure(TSR_UNIMPLEMENTED or TSR_INVALID_ARGUMENT) with the reason why this config cannot be served.
// `compute_kernels` ends with NULL; tables of more than `max_rows` rows are refused.
Config checked(const tsr_kernel_config& config, const char* const* compute_kernels, int64_t max_rows);

// int32 or int64 numbers.
class Indices {
 public:
  Indices(const DLTensor& tensor, const char* what);
  int64_t operator[](int64_t i) const {
    return wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }
  int64_t size() const { return size_; }
  bool wide() const { return wide_; }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(data_);
  }

 private:
  const void* data_;
  int64_t size_;
  bool wide_;
};

// A batch, checked: its tensors have the right types, and its features stay inside them. The caller guarantees that ids
// are valid.
struct Batch {
  // `values` is the first output, or the gradient of the first output.
  Batch(const tsr_lookup& lookup, const Config& config, const DLTensor& values);

  const tsr_lookup_feature& feature(size_t f) const { return sdk::feature_of(*lookup, f); }
  uint32_t num_features() const { return lookup->num_features; }
  // The range of positions of a feature's ids: [begin, end).
  int64_t begin(const tsr_lookup_feature& feature) const { return offsets[feature.first_offset]; }
  int64_t end(const tsr_lookup_feature& feature) const { return offsets[feature.first_offset + feature.bags]; }

  // The address of row 0 of a feature's output, or of its gradient.
  char* values(const tsr_lookup_feature& feature) const {
    return static_cast<char*>(sdk::raw(sdk::output_of(*lookup, feature, *first_values))) +
           feature.output_offset * value_bytes;
  }

  // The output rows of a feature's bags; NULL means that bag i has row i.
  const int32_t* rows(const tsr_lookup_feature& feature) const {
    return listed == nullptr || feature.listed == 0 ? nullptr : listed + feature.first_offset;
  }

  const tsr_lookup* lookup;
  Indices ids;
  Indices offsets;
  const float* weights;   // NULL means all 1
  const int32_t* listed;  // output rows of features that list them; NULL if none does
  const DLTensor* first_values;
  int64_t value_bytes;
};

}  // namespace tessera_cpu
