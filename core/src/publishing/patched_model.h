// A packed model whose rows are those of a base with deltas applied. Its base is mapped for itself alone: pages that
// deltas write are copied, the others stay the file's.
#pragma once

#include <memory>
#include <string>

#include "publishing/publication.h"
#include "tessera/packed_model.h"

namespace tessera::publishing {

class PatchedModel {
 public:
  PatchedModel() = default;
  explicit PatchedModel(const std::string& base);
  const InferenceModel& model() const { return model_; }

  // kDataLoss: a delta of another model; names `path`.
  void check(const Delta& delta, const std::string& path) const;
  // Of one that was checked. Nobody reads model()'s tables meanwhile.
  void apply(const Delta& delta);

 private:
  InferenceModel model_;
};

}  // namespace tessera::publishing
