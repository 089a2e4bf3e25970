// The source of the items' vectors: a table of the model, or a file that tessera predict --vectors has written.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/packed_model.h"
#include "tessera/tensor.h"

namespace tessera::retrieval {

inline constexpr const char* kVectors = "vectors";  // the tensor of such a file

// Which items: part `part` of `parts` that are as many each, the last ones fewer or none; as row_wise cuts tables.
struct ItemPart {
  int64_t part = 0, parts = 1;
};
struct ItemVectors {
  Tensor vectors;     // float32 [items of the part, dim]
  int64_t first = 0;  // number of the first
  int64_t all = 0;    // items of all parts
};
// Item i is row i. `items`: a file, or a table's name. kNotFound: neither; kDataLoss: a damaged file; kInvalidArgument:
// a file without such a tensor, a table whose rows have ids of their own.
ItemVectors item_vectors(const InferenceModel& model, const std::string& items, const ItemPart& part = {});
void write_vectors(const std::string& path, const Tensor& vectors);

}  // namespace tessera::retrieval
