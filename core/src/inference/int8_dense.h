// Dense layers in int8: models whose weights are integers with a scale for each row (tessera/sdk/int8_rows.h).
#pragma once

#include <map>
#include <string>

#include "tessera/predictor.h"

namespace tessera::inference {

// Chooses the precision of a predictor's dense layers from its option; "": that of the model. A model in int8 has no
// other, and only such a model has it. Errors are those of choose_precision(), and kInvalidArgument.
DensePrecision prediction_precision(const Runtime& runtime, const InferenceModel& model, const std::string& wanted);

// A model's dense tensors as its file has them: for each of model.int8_weights its codes, uint8, which are the integers
// plus 128, and its scales, float32 [rows], with the name that scales_name() gives.
std::map<std::string, Tensor> stored_dense(const InferenceModel& model);
std::string scales_name(const std::string& weight);
// Reverses stored_dense(): replaces codes and scales by float32 values and fills model.int8_weights. kDataLoss: they do
// not fit each other; the error names the tensor.
void restore_dense(InferenceModel& model);

}  // namespace tessera::inference
