// Checks that an input can be predicted, before anything is looked up.
#pragma once

#include <string>

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

}  // namespace tessera::inference
