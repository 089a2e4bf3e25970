// Data for a packed model: batches as its predictor takes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/data.h"
#include "tessera/predictor.h"

namespace tessera {

// The model's encoding of columns without those of ids that it looks up nowhere (a loss's groups): files need not have
// them.
std::string looked_up_columns(const ModelDescription& model);
// The columns of files that the model cannot do without: "price", "user" and "item"; empty: it does not say.
std::string needed_columns(const ModelDescription& model);

// A batch of a reader as a predictor takes it: the model's features, in its order.
class BatchInput {
 public:
  // kInvalidArgument where data with these columns and dense inputs does not fit the model; the sentence names both.
  BatchInput(const ModelDescription& model, const std::vector<DataColumn>& columns, int64_t dense_inputs);
  // Borrows `batch`, and is valid until the next call.
  const PredictInput& from(const Batch& batch);

 private:
  std::vector<size_t> column_of_;  // by feature
  std::vector<int64_t> values_;
  std::vector<int32_t> lengths_;
  std::vector<PredictInput::Feature> features_;
  PredictInput input_;
};

// What the model says of a batch: values[o] of output o, [samples, widths[o]].
using ValuesSink = std::function<void(const std::vector<std::vector<float>>& values, const Batch& batch)>;
// All samples in their order, a batch at a time; outputs of a width of 0 are not asked.
void predict_all(Predictor& predictor, const Dataset& data, const Samples& samples, int64_t batch,
                 const std::vector<size_t>& widths, const ValuesSink& sink);

}  // namespace tessera
