#include "train/observed_inputs.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

constexpr int64_t kSamples = 8192;

struct Observed {
  double bags = 0;
  std::vector<int64_t> ids;
};

template <class Id>
void add_ids(const Tensor& values, int64_t begin, int64_t end, std::vector<int64_t>* out) {
  out->insert(out->end(), values.data<Id>() + begin, values.data<Id>() + end);
}

// The result is by column.
std::map<std::string, Observed> observe(const Dataset& data, int64_t batch) {
  std::map<std::string, Observed> out;
  if (!data.train) return out;  // the rows arrive later
  BatchReader reader(data.train.some(), {batch, 0, 1, 1, true});
  Batch b;
  for (int64_t seen = 0; seen < kSamples && reader.next(b); seen += b.labels.numel()) {
    const KeyedJaggedTensor& sparse = b.sparse;
    for (size_t k = 0; k < sparse.keys().size(); ++k) {
      Observed& o = out[sparse.keys()[k]];
      o.bags += static_cast<double>(b.labels.numel());
      const int64_t begin = sparse.offset_per_key()[k], end = begin + sparse.length_per_key()[k];
      if (sparse.values().dtype() == DType::kInt32)
        add_ids<int32_t>(sparse.values(), begin, end, &o.ids);
      else
        add_ids<int64_t>(sparse.values(), begin, end, &o.ids);
    }
  }
  return out;
}

double distinct(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
}

}  // namespace

void observe_inputs(const Dataset& data, const std::vector<TableConfig>& tables, int64_t batch,
                    PlannerOptions* options) {
  const auto observed = observe(data, std::clamp<int64_t>(batch, 1, 1024));
  for (const TableConfig& table : tables) {
    ParameterConstraints& c = options->constraints[table.name];
    double exponents = 0, weight = 0;
    for (size_t f = 0; f < table.features.size(); ++f) {
      const auto found = observed.find(table.features[f]);
      if (found == observed.end() || found->second.bags == 0) continue;
      const auto ids = static_cast<double>(found->second.ids.size());
      if (table.pooling_factor.empty()) c.pooling_factors.at(f) = ids / found->second.bags;
      exponents += ids * zipf_exponent_of(table.rows, ids, distinct(found->second.ids));
      weight += ids;
    }
    if (weight > 0 && c.zipf_exponent == 0) c.zipf_exponent = exponents / weight;
  }
}

}  // namespace tessera
