// Counters of predictors, kept outside them, so that successive versions of a model continue the same counts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/predictor.h"

namespace tessera::inference {

struct PredictorCounts {
  explicit PredictorCounts(size_t tables) : bad_ids(tables) {}
  std::atomic<uint64_t> predictions{0}, samples{0};
  std::vector<std::atomic<uint64_t>> bad_ids;  // by table
};

PredictorStats totals(const PredictorCounts& counts);

// Does the same as the public function. `counts` has as many tables as the model.
std::unique_ptr<Predictor> make_predictor(const Runtime& runtime, InferenceModel model, const PredictorOptions& options,
                                          std::shared_ptr<PredictorCounts> counts);

}  // namespace tessera::inference
