// Rows of a data set as a model takes them, by the fields of the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera::cli {

// Columns of a model that are made of one field of the files: features and dense values, by index.
struct Field {
  std::string name;
  std::vector<size_t> features, dense;
};

// The bags of one feature, for any number of rows.
struct Bags {
  std::vector<int64_t> values, begins = {0};
  std::vector<int32_t> lengths;
  std::vector<float> weights;  // empty: all 1

  void add(const PredictInput::Feature& part);
  // The same rows in another order; a row may come several times.
  Bags in_order(const std::vector<uint32_t>& order) const;
  PredictInput::Feature rows(size_t first, size_t count) const;
};

struct FieldRows {
  std::vector<Batch> batches;  // for labels and weights
  std::vector<Bags> features;
  std::vector<float> dense;  // [count, width]
  size_t count = 0, width = 0;
};

// At most the first `most` rows, but whole batches.
FieldRows read_rows(const ModelDescription& model, const Dataset& data, const std::vector<Samples>& parts,
                    int64_t batch, int64_t most);
// The fields that the model's outputs need.
std::vector<Field> fields_of(const ModelDescription& model, const Dataset& data);

}  // namespace tessera::cli
