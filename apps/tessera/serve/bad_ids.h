// Counts ids out of range per table: those that the model tolerated, and those for which requests were refused.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tessera/predictor.h"

namespace tessera::serve {

class BadIds {
 public:
  // `goes_on`: versions of one model follow each other, and counts continue from one to the next.
  explicit BadIds(bool goes_on) : goes_on_(goes_on) {}
  // [any-thread] Call this if `input` was refused: counts its ids below 0 or beyond their tables' rows.
  void refused(const std::shared_ptr<Predictor>& model, const PredictInput& input);
  // [any-thread] The counts for this model, in the order of its tables.
  std::vector<std::pair<std::string, uint64_t>> of(const std::shared_ptr<Predictor>& model) const;

 private:
  const bool goes_on_;
  mutable std::mutex mutex_;
  std::weak_ptr<Predictor> model_;  // the model that the counts belong to
  std::vector<uint64_t> refused_;   // per table
};

}  // namespace tessera::serve
