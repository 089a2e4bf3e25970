#include "serve/bad_ids.h"

#include <algorithm>

namespace tessera::serve {
namespace {

bool looks_up(const ModelTable& table, const std::string& feature) {
  return std::find(table.features.begin(), table.features.end(), feature) != table.features.end();
}

}  // namespace

void BadIds::refused(const std::shared_ptr<Predictor>& model, const PredictInput& input) {
  const ModelDescription& d = model->model();
  std::vector<uint64_t> counts(d.tables.size(), 0);
  for (size_t f = 0; f < d.features.size(); ++f) {
    for (size_t t = 0; t < d.tables.size(); ++t) {
      if (!looks_up(d.tables[t], d.features[f].name)) continue;
      for (int64_t id : input.features[f].values) counts[t] += id < 0 || id >= d.tables[t].ids;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!goes_on_ && model_.lock() != model) refused_.clear();
  model_ = model;
  refused_.resize(counts.size());
  for (size_t t = 0; t < counts.size(); ++t) refused_[t] += counts[t];
}

std::vector<std::pair<std::string, uint64_t>> BadIds::of(const std::shared_ptr<Predictor>& model) const {
  const ModelDescription& d = model->model();
  const std::vector<uint64_t> passed = model->stats().bad_ids;
  std::vector<std::pair<std::string, uint64_t>> out;
  const std::lock_guard lock(mutex_);
  const bool counted = goes_on_ || model_.lock() == model;
  for (size_t t = 0; t < d.tables.size(); ++t) {
    out.emplace_back(d.tables[t].name,
                     (t < passed.size() ? passed[t] : 0) + (counted && t < refused_.size() ? refused_[t] : 0));
  }
  return out;
}

}  // namespace tessera::serve
