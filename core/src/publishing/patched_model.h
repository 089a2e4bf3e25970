// A packed model whose rows are those of a base with deltas applied. Its base is mapped for itself alone: pages that
// deltas write are copied, the others stay the file's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "publishing/publication.h"
#include "tessera/packed_model.h"

namespace tessera::publishing {

// Of tables whose ids are rows, the rows that somebody reads: ascending ranges that do not overlap. A table that is not
// there: all.
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

  // kDataLoss: a delta of another model; names `path`.
  void check(const Delta& delta, const std::string& path) const;
  // Of one that was checked. Nobody reads model()'s tables meanwhile. `kept`: rows of other ranks are left as they are;
  // null: all are written.
  void apply(const Delta& delta, const KeptRows* kept = nullptr);

 private:
  InferenceModel model_;
};

}  // namespace tessera::publishing
