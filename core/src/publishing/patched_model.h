// A packed model with the rows of a base and the deltas applied to it. The base is mapped privately: pages that deltas
// write are copied, others stay in the file.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "publishing/publication.h"
#include "tessera/predictor.h"

namespace tessera::publishing {

// Rows that somebody reads, for tables whose ids are rows: ascending ranges that do not overlap. All rows of tables
// that are not listed are read.
struct RowRange {
  int64_t first = 0, end = 0;
  bool operator==(const RowRange&) const = default;
  bool operator<(const RowRange& other) const { return std::pair(first, end) < std::pair(other.first, other.end); }
};
using KeptRows = std::map<std::string, std::vector<RowRange>>;

class PatchedModel {
 public:
  PatchedModel() = default;
  explicit PatchedModel(const std::string& base);
  const InferenceModel& model() const { return model_; }

  // kDataLoss: the delta belongs to another model; the error names `path`.
  void check(const Delta& delta, const std::string& path) const;
  // Applies a checked delta. Nobody may read model()'s tables meanwhile. `kept`: leave other ranks' rows unchanged;
  // null: write all.
  void apply(const Delta& delta, const KeptRows* kept = nullptr);

 private:
  InferenceModel model_;
};

}  // namespace tessera::publishing
