// Reads the items' vectors from a table of the model, or from a file that tessera predict --vectors has written.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/predictor.h"
#include "tessera/tensor.h"

namespace tessera::retrieval {

inline constexpr const char* kVectors = "vectors";  // name of the tensor in such a file

// Part `part` of `parts` equal parts of the items; the last ones have fewer or none. row_wise divides tables the same
// way.
struct ItemPart {
  int64_t part = 0, parts = 1;
};
struct ItemVectors {
  Tensor vectors;     // float32 [items of the part, dim]
  int64_t first = 0;  // number of the first item
  int64_t all = 0;    // items of all parts together
};
// Rows [first, end) of a table.
struct ItemRows {
  int64_t first, end;
};
// Those that can be items: of a vocabulary the rows that have a word, and of others those that training may draw.
ItemRows item_rows(const InferenceModel& model, const ModelTable& table);
// Item i is row i. `items` is a file or a table's name. Rows of a table that are not item_rows() are no items. Throws
// kNotFound if it is neither, kDataLoss if the file is damaged, and kInvalidArgument for a file without such a tensor
// or a table whose rows have ids of their own.
ItemVectors item_vectors(const InferenceModel& model, const std::string& items, const ItemPart& part = {});
void write_vectors(const std::string& path, const Tensor& vectors);

}  // namespace tessera::retrieval
