// Where the vectors of items come from: a table of the model, or a file that tessera predict --vectors has written.
#pragma once

#include <string>

#include "tessera/packed_model.h"
#include "tessera/tensor.h"

namespace tessera::retrieval {

inline constexpr const char* kVectors = "vectors";  // the tensor of such a file

// float32 [items, dim]: item i is row i. `items`: a file, or a table's name. kNotFound: neither; kDataLoss: a damaged
// file; kInvalidArgument: a file without such a tensor, a table whose rows have ids of their own.
Tensor item_vectors(const InferenceModel& model, const std::string& items);
void write_vectors(const std::string& path, const Tensor& vectors);

}  // namespace tessera::retrieval
