// Checks that an input can be predicted, before anything is looked up.
#pragma once

#include <string>
#include <vector>

#include "tessera/predictor.h"

namespace tessera::inference {

struct Problem {
  Code code = Code::kOk;
  std::string sentence;  // empty: nothing is wrong
};

// Returns the first error in `input`. Allocates nothing if there is none. [any-thread]
Problem problem_with(const ModelDescription& model, const PredictInput& input);

// Counts ids outside [0, rows).
int64_t count_bad(std::span<const int64_t> ids, int64_t rows);

// Takes the ids of features that no output depends on out of inputs, so that they are not looked up.
class NeededFeatures {
 public:
  explicit NeededFeatures(const ModelDescription& model);
  // Valid until the next call. Allocates nothing once the largest batch was seen.
  PredictInput of(const PredictInput& input);

 private:
  std::vector<bool> needed_;
  bool all_ = true;
  std::vector<PredictInput::Feature> features_;
  std::vector<int32_t> zeros_;
};

}  // namespace tessera::inference
