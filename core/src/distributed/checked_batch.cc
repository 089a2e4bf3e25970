#include "distributed/checked_batch.h"

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

void find_bags(const LaneMap& map, CheckedBatch& out) {
  const size_t slots = map.slots().size();
  out.slot_bags.assign(slots, out.input.stride());
  out.slot_first_bag.resize(slots);
  if (!out.input.variable_stride_per_key()) {
    for (size_t s = 0; s < slots; ++s) out.slot_first_bag[s] = out.slot_key[s] * out.input.stride();
    return;
  }
  const auto bags = out.input.stride_per_key();
  const auto first = out.input.lengths_offset_per_key();
  for (size_t s = 0; s < slots; ++s) {
    out.slot_bags[s] = bags[out.slot_key[s]];
    out.slot_first_bag[s] = first[out.slot_key[s]];
  }
}

// One key per slot, as check_bounds has copied them.
KeyedJaggedTensor batch_by_slot(const LaneMap& map, const CheckedIds& checked, const CheckedBatch& from) {
  KeyedJaggedTensor::Options o;
  o.values = checked.ids;
  o.weights = checked.weights;
  o.offsets = checked.offsets;
  o.stride = from.original.stride();
  for (size_t s = 0; s < map.slots().size(); ++s) {
    o.keys.push_back(map.slots()[s].name);
    if (from.original.variable_stride_per_key()) o.stride_per_key_per_rank.push_back({from.slot_bags[s]});
  }
  if (const auto* inverse = from.original.inverse_indices_or_null()) o.inverse_indices = *inverse;
  return KeyedJaggedTensor(std::move(o));
}

// A kernel's MEAN divides by the ids it sees: weights of kept / all make that a division by all.
Tensor mean_weights(const LaneMap& map, const CheckedIds& checked) {
  Tensor weights = checked.weights.defined() ? checked.weights.clone() : Tensor::empty({checked.ids.numel()});
  if (!checked.weights.defined()) weights.fill(1);
  const int64_t* offsets = checked.offsets.data<int64_t>();
  for (size_t s = 0; s < map.slots().size(); ++s) {
    if (map.slots()[s].pooling != PoolingType::kMean) continue;
    const int64_t end = s + 1 < map.slots().size() ? checked.first_bag[s + 1] : checked.lengths.numel();
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

// A batch may bring both; the bounds check has read the offsets alone.
void check_lengths(const KeyedJaggedTensor& input) {
  const Tensor &lengths = input.lengths(), &offsets = input.offsets();
  const bool agree = lengths.dtype() == offsets.dtype() &&
                     (lengths.dtype() == DType::kInt32 ? lengths_agree<int32_t>(lengths, offsets)
                                                       : lengths_agree<int64_t>(lengths, offsets));
  if (!agree) fail(Code::kInvalidArgument, "the batch's lengths and offsets disagree");
}

// Checks the inverse indices and finds each slot's row of them. The features are looked up by name.
void find_inverse(const LaneMap& map, bool sequence, CheckedBatch& out) {
  const auto* inverse = sequence ? nullptr : out.original.inverse_indices_or_null();
  out.expands =
      inverse && inverse->indices.defined() && (inverse->indices.numel() > 0 || out.original.variable_stride_per_key());
  out.output_batch = out.original.stride();
  out.inverse.clear();
  if (!out.expands) {
    if (!sequence && out.original.variable_stride_per_key()) {
      fail(Code::kInvalidArgument, "a batch with a variable number of samples per feature needs inverse indices");
    }
    return;
  }
  const Tensor& indices = inverse->indices;
  if (indices.dtype() != DType::kInt64 || indices.dim() != 2 ||
      indices.size(0) != static_cast<int64_t>(inverse->keys.size())) {
    fail(Code::kInvalidArgument, "inverse indices are int64 [keys, batch]");
  }
  out.output_batch = indices.size(1);
  for (size_t s = 0; s < map.slots().size(); ++s) {
    const std::string& feature = map.slots()[s].feature;
    const auto at = std::find(inverse->keys.begin(), inverse->keys.end(), feature);
    if (at == inverse->keys.end()) fail(Code::kNotFound, "the inverse indices have no feature \"", feature, "\"");
    const int64_t* row = indices.data<int64_t>() + (at - inverse->keys.begin()) * out.output_batch;
    for (int64_t b = 0; b < out.output_batch; ++b) {
      if (row[b] < 0 || row[b] >= out.slot_bags[s]) {
        fail(Code::kOutOfRange, "inverse index ", row[b], " of feature \"", feature, "\", sample ", b,
             ", is not below its ", out.slot_bags[s], " samples");
      }
    }
    out.inverse.push_back(row);
  }
}

}  // namespace

const std::vector<int>& KeyIndex::find(const LaneMap& map, const KeyedJaggedTensor& input) {
  if (!index_.empty() && input.keys() == keys_) return index_;
  std::vector<int> index;
  for (const Slot& slot : map.slots()) index.push_back(static_cast<int>(input.key_index(slot.feature)));
  index_ = std::move(index);
  keys_ = input.keys();
  return index_;
}

void check_batch(const LaneMap& map, const std::vector<EmbeddingBagConfig>& tables, const BatchRules& rules,
                 KeyIndex& keys, const KeyedJaggedTensor& input, CheckedBatch& out) {
  out.input = out.original = input;
  out.slot_key = out.original_key = keys.find(map, input);
  out.mean_lengths = out.positions = out.mean_weights = {};
  out.dropped = 0;
  out.first_dropped.clear();
  find_bags(map, out);
  std::vector<BoundsFeature>& features = out.features;
  features.clear();
  for (size_t s = 0; s < map.slots().size(); ++s) {
    const Slot& slot = map.slots()[s];
    const EmbeddingBagConfig& table = tables[slot.table];
    features.push_back({slot.feature, table.name, table.num_embeddings, out.slot_first_bag[s], out.slot_bags[s], -1,
                        table.row_format.has_value(), table.remapping.get()});
  }
  const CheckedIds checked = check_bounds(
      rules.bounds, {input.values(), input.offsets(), rules.weighted ? input.weights() : Tensor(), features, false});
  find_inverse(map, rules.sequence, out);
  if (checked.clean) {
    check_lengths(input);
    return;
  }
  if (rules.sequence && checked.bad_offsets)
    fail(Code::kInvalidArgument, "the offsets of a sequence batch cannot be repaired: ", checked.first);
  out.input = batch_by_slot(map, checked, out);
  std::iota(out.slot_key.begin(), out.slot_key.end(), 0);
  out.slot_first_bag = checked.first_bag;
  out.mean_lengths = checked.lengths;
  out.positions = checked.positions;
  out.mean_weights = mean_weights(map, checked);
  out.dropped = std::accumulate(checked.bad.begin(), checked.bad.end(), int64_t{0});
  out.first_dropped = checked.first;
}

}  // namespace tessera
