// Concatenates the requests of a batch into one input. Its buffers only grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/protocol.h"
#include "tessera/predictor.h"

namespace tessera::serve {

class MergedBatch {
 public:
  // The input is valid until the next call. `requests` is not empty, and all are for one model.
  PredictInput merge(std::span<const InferRequest* const> requests);

 private:
  std::vector<float> dense_, weights_;
  std::vector<int64_t> values_;
  std::vector<int32_t> lengths_;
  std::vector<PredictInput::Feature> features_;
};

}  // namespace tessera::serve
