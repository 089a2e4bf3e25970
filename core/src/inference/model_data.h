// Data for a packed model: batches in the form that its predictor takes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera {

// The model's column encoding without the id columns that are used only to group losses. Input files may omit those.
std::string looked_up_columns(const ModelDescription& model);
// Columns that input files must have: "price", "user" and "item"; empty: the model does not say.
std::string needed_columns(const ModelDescription& model);

// Turns a reader's batch into a predictor's input: the model's features, in its order.
class BatchInput {
 public:
  // kInvalidArgument: data with these columns and dense inputs do not fit the model; the error names both.
  BatchInput(const ModelDescription& model, const std::vector<DataColumn>& columns, int64_t dense_inputs);
  // The result borrows `batch` and is valid until the next call.
  const PredictInput& from(const Batch& batch);

 private:
  static constexpr size_t kNoColumn = SIZE_MAX;  // of a feature that is not needed and not there
  std::vector<size_t> column_of_;                // by feature
  std::vector<int64_t> values_;
  std::vector<int32_t> lengths_, no_lengths_;
  std::vector<PredictInput::Feature> features_;
  PredictInput input_;
};

// Receives the model's outputs for a batch: values[o] of output o, [samples, widths[o]].
using ValuesSink = std::function<void(const std::vector<std::vector<float>>& values, const Batch& batch)>;
// Predicts all samples in order, a batch at a time. Outputs with width 0 are left out.
void predict_all(Predictor& predictor, const Dataset& data, const Samples& samples, int64_t batch,
                 const std::vector<size_t>& widths, const ValuesSink& sink);

}  // namespace tessera
