#include "distributed/checked_batch.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "sparse/arrays.h"

namespace tessera {
namespace {

constexpr int64_t kMostCounted = std::numeric_limits<int32_t>::max();

template <class T>
void find_ids(const Tensor& offsets, std::vector<FeatureBags>& feature_bags) {
  const T* offset = offsets.data<T>();
  for (FeatureBags& s : feature_bags) {
    s.first_id = offset[s.first_bag];
    s.ids = offset[s.first_bag + s.bags] - s.first_id;
  }
}

// Finds each table feature's ids, from offsets that were checked.
void find_ids(const Tensor& offsets, std::vector<FeatureBags>& feature_bags) {
  if (offsets.dtype() == DType::kInt32)
    find_ids<int32_t>(offsets, feature_bags);
  else
    find_ids<int64_t>(offsets, feature_bags);
}

// Finds each table feature's bags.
void find_bags(const std::vector<int>& keys, const KeyedJaggedTensor& input, std::vector<FeatureBags>& feature_bags) {
  feature_bags.resize(keys.size());
  const int64_t stride = input.stride();
  if (!input.variable_stride_per_key()) {
    for (size_t s = 0; s < keys.size(); ++s) feature_bags[s] = {keys[s] * stride, stride, 0, 0};
    return;
  }
  const auto bags = input.stride_per_key();
  const auto first = input.lengths_offset_per_key();
  for (size_t s = 0; s < keys.size(); ++s) feature_bags[s] = {first[keys[s]], bags[keys[s]], 0, 0};
}

// A kernel's MEAN divides by the ids that it sees, which are the remaining ones. Weights of remaining / all ids turn
// that into a division by all ids.
Tensor mean_weights(const Wiring& wiring, const CheckedIds& checked) {
  Tensor weights = checked.weights.defined() ? checked.weights.clone() : Tensor::empty({checked.ids.numel()});
  if (!checked.weights.defined()) weights.fill(1);
  const int64_t* offsets = checked.offsets.data<int64_t>();
  for (size_t s = 0; s < wiring.table_features().size(); ++s) {
    if (wiring.table_features()[s].pooling != PoolingType::kMean) continue;
    const int64_t end = s + 1 < wiring.table_features().size() ? checked.first_bag[s + 1] : checked.lengths.numel();
    for (int64_t b = checked.first_bag[s]; b < end; ++b) {
      const int64_t all = checked.lengths.data<int64_t>()[b], kept = offsets[b + 1] - offsets[b];
      for (int64_t i = offsets[b]; i < offsets[b + 1]; ++i) {
        weights.data<float>()[i] *= static_cast<float>(kept) / static_cast<float>(all);
      }
    }
  }
  return weights;
}

template <class T>
bool lengths_agree(const Tensor& lengths, const Tensor& offsets) {
  const T *length = lengths.data<T>(), *offset = offsets.data<T>();
  bool agree = offsets.numel() == lengths.numel() + 1;
  for (int64_t i = 0; agree && i < lengths.numel(); ++i) agree = offset[i + 1] - offset[i] == length[i];
  return agree;
}

// A batch may have both lengths and offsets. The bounds check has read only the offsets.
void check_lengths(const KeyedJaggedTensor& input) {
  const Tensor &lengths = input.lengths(), &offsets = input.offsets();
  const bool agree = lengths.dtype() == offsets.dtype() &&
                     (lengths.dtype() == DType::kInt32 ? lengths_agree<int32_t>(lengths, offsets)
                                                       : lengths_agree<int64_t>(lengths, offsets));
  if (!agree) fail(Code::kInvalidArgument, "the batch's lengths and offsets disagree");
}

// Checks the inverse indices and finds the row of them that each table feature uses. Features are looked up by name.
void find_inverse(const Wiring& wiring, const KeyedJaggedTensor& input, CheckedBatch& out) {
  const auto* inverse = wiring.sequence() ? nullptr : input.inverse_indices_or_null();
  out.expands =
      inverse && inverse->indices.defined() && (inverse->indices.numel() > 0 || input.variable_stride_per_key());
  out.output_batch = input.stride();
  out.inverse.clear();
  if (!out.expands) {
    if (!wiring.sequence() && input.variable_stride_per_key()) {
      fail(Code::kInvalidArgument, "a batch with a variable number of samples per feature needs inverse indices");
    }
    return;
  }
  const Tensor& indices = out.inverse_indices = inverse->indices;
  if (indices.dtype() != DType::kInt64 || indices.dim() != 2 ||
      indices.size(0) != static_cast<int64_t>(inverse->keys.size())) {
    fail(Code::kInvalidArgument, "inverse indices are int64 [keys, batch]");
  }
  out.output_batch = indices.size(1);
  if (out.output_batch > kMostCounted) {
    fail(Code::kOutOfRange, "the inverse indices are for ", out.output_batch, " samples, but at most ", kMostCounted,
         " can be in a rank's batch: make it smaller");
  }
  for (size_t s = 0; s < wiring.table_features().size(); ++s) {
    const std::string& feature = wiring.table_features()[s].feature;
    const auto at = std::find(inverse->keys.begin(), inverse->keys.end(), feature);
    if (at == inverse->keys.end()) fail(Code::kNotFound, "the inverse indices have no feature \"", feature, "\"");
    const int64_t* row = indices.data<int64_t>() + (at - inverse->keys.begin()) * out.output_batch;
    for (int64_t b = 0; b < out.output_batch; ++b) {
      if (row[b] < 0 || row[b] >= out.feature_bags[s].bags) {
        fail(Code::kOutOfRange, "inverse index ", row[b], " of feature \"", feature, "\", sample ", b,
             ", is not below its ", out.feature_bags[s].bags, " samples");
      }
    }
    out.inverse.push_back(row);
  }
}

// Takes the copy that check_bounds() has made: one key per table feature.
void take_copy(const Wiring& wiring, const CheckedIds& checked, CheckedBatch& out) {
  out.values = checked.ids;
  out.weights = checked.weights;
  out.offsets = checked.offsets;
  out.lengths = sparse::lengths_of(checked.offsets);
  for (size_t s = 0; s < out.feature_bags.size(); ++s) out.feature_bags[s].first_bag = checked.first_bag[s];
  check_counts(wiring.table_features(), out.feature_bags, out.lengths, out.values.numel(), wiring.sequence());
  find_ids(out.offsets, out.feature_bags);
  out.mean_lengths = checked.lengths;
  out.positions = checked.positions;
  out.mean_weights = mean_weights(wiring, checked);
  out.dropped = std::accumulate(checked.bad.begin(), checked.bad.end(), int64_t{0});
  out.first_dropped = checked.first;
}

}  // namespace

void check_counts(const std::vector<TableFeature>& table_features, const std::vector<FeatureBags>& bags,
                  const Tensor& lengths, int64_t num_ids, bool sequence) {
  for (size_t s = 0; s < table_features.size(); ++s) {
    const auto refuse = [&](auto... what) {
      fail(Code::kOutOfRange, "feature \"", table_features[s].feature, "\" has ", what..., ", but at most ",
           kMostCounted, " can be in a rank's batch: make it smaller");
    };
    if (bags[s].bags > kMostCounted) refuse(bags[s].bags, " samples");
    const bool all_there = bags[s].first_bag + bags[s].bags <= lengths.numel();  // if not, check_lengths refuses them
    if (num_ids <= kMostCounted || !all_there) continue;
    int64_t all = 0;
    for (int64_t b = 0; b < bags[s].bags; ++b) {
      const int64_t length = sparse::integer_at(lengths, bags[s].first_bag + b);
      if (length > kMostCounted) refuse(length, " ids in sample ", b);
      all += length;
    }
    if (sequence && all > kMostCounted) refuse(all, " ids in a sequence batch");
  }
}

void CheckedBatch::release() {
  values = weights = lengths = offsets = mean_lengths = positions = mean_weights = inverse_indices = original_lengths =
      original_values = {};
}

const std::vector<int>& KeyIndex::find(const Wiring& wiring, const KeyedJaggedTensor& input) {
  if (!index_.empty() && input.keys() == keys_) return index_;
  std::vector<int> index;
  for (const TableFeature& table_feature : wiring.table_features())
    index.push_back(static_cast<int>(input.key_index(table_feature.feature)));
  index_ = std::move(index);
  keys_ = input.keys();
  return index_;
}

void check_batch(const Wiring& wiring, const std::vector<EmbeddingBagConfig>& tables, const BatchRules& rules,
                 KeyIndex& keys, const KeyedJaggedTensor& input, CheckedBatch& out) {
  if (input.values().stream()) return check_batch(wiring, tables, rules, keys, input.to_host(), out);
  out.release();
  out.dropped = 0;
  out.first_dropped.clear();
  find_bags(keys.find(wiring, input), input, out.feature_bags);
  check_counts(wiring.table_features(), out.feature_bags, input.lengths(), input.values().numel(), wiring.sequence());
  std::vector<BoundsFeature>& features = out.features;
  features.clear();
  for (size_t s = 0; s < wiring.table_features().size(); ++s) {
    const TableFeature& table_feature = wiring.table_features()[s];
    const EmbeddingBagConfig& table = tables[table_feature.table];
    features.push_back({table_feature.feature, table.name, table.id_bound(), out.feature_bags[s].first_bag,
                        out.feature_bags[s].bags, -1, table.row_format.has_value(), table.remapping.get()});
  }
  out.values = input.values();
  out.offsets = input.offsets();
  if (rules.weighted) out.weights = input.weights();
  const CheckedIds checked = check_bounds(rules.bounds, {out.values, out.offsets, out.weights, features, false});
  find_inverse(wiring, input, out);
  out.lengths = out.original_lengths = input.lengths();
  out.original_values = input.values();
  if (checked.clean) {
    check_lengths(input);
    find_ids(out.offsets, out.feature_bags);
    out.original_feature_bags = out.feature_bags;
    return;
  }
  if (wiring.sequence() && checked.bad_offsets)
    fail(Code::kInvalidArgument, "the offsets of a sequence batch cannot be repaired: ", checked.first);
  out.original_feature_bags = out.feature_bags;
  if (!checked.bad_offsets) find_ids(out.offsets, out.original_feature_bags);  // only sequences use them
  take_copy(wiring, checked, out);
}

}  // namespace tessera
