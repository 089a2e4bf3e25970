// The heads of a model that predictions can have, and the features that these need.
#pragma once

#include "tessera/predictor.h"

namespace tessera::inference {

// Leaves out heads with a loss whose values depend on ids that only a trainer draws (ModelGraph::drawn), and sets
// ModelFeature::needed. kInvalidArgument: no head is left; the sentence says what such a model answers.
void keep_served_heads(InferenceModel& model);
// A table whose rows a trainer draws, if no head would be left; null: the model has scores.
const QuantizedTable* items_without_scores(const InferenceModel& model);

}  // namespace tessera::inference
