#include "distributed/replicas.h"

#include <algorithm>

#include "modules/lookup_view.h"

namespace tessera {

Replicas::Replicas(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                   const EmbeddingModuleShardingPlan& plan, const LaneMap& map, int rank,
                   const ShardGroupOptions& options)
    : map_(map), tables_(tables), groups_(runtime, tables, plan, rank, true, options) {}

LookupView Replicas::local_batch(const Batch& batch) {
  const Tensor none;
  if (batch.device) {
    const ReplicaBatch& on = batch.device->replicas;
    return {on.ids.tensor().first({on.num_ids}), on.offsets.tensor().first({on.num_bags + 1}),
            on.weighted ? on.weights.tensor().first({on.num_ids}) : none};
  }
  const CheckedBatch& checked = batch.checked;
  const Tensor& weights = !checked.clean() ? checked.mean_weights : batch.weighted ? checked.weights : none;
  return {checked.values, checked.offsets, weights};
}

void Replicas::fill_features(const Batch& batch) {
  features_.resize(groups_.lookups().size());
  for (auto& features : features_) features.clear();
  for (size_t s = 0; s < map_.slots().size(); ++s) {
    const Slot& slot = map_.slots()[s];
    if (!slot.replicated) continue;
    const auto shard = std::find_if(groups_.shards().begin(), groups_.shards().end(),
                                    [&](const LocalShard& l) { return l.table == slot.table; });
    const SlotBags& bags = batch.checked.slots[s];
    tsr_lookup_feature feature{};
    feature.table = shard->index;
    feature.pooling = batch.sequence ? TSR_POOLING_NONE : static_cast<int32_t>(slot.pooling);
    feature.bags = bags.bags;
    feature.first_offset = batch.device ? batch.device->replicas.first_offset[s] : bags.first_bag;
    feature.output_offset = batch.layout.offset[s];
    feature.output_stride = batch.layout.stride[s];
    features_[shard->group].push_back(feature);
  }
}

void Replicas::forward(const Batch& batch, const Tensor& out, Contexts* contexts) {
  if (batch.device) upload_batch(batch);
  fill_features(batch);
  const LookupView local = local_batch(batch);
  if (contexts) {
    contexts->clear();
    contexts->resize(groups_.lookups().size());
  }
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const tsr_lookup lookup = local.of(features_[g]);
    const bool keep = contexts && groups_.lookups()[g]->options().train;
    groups_.lookups()[g]->forward(lookup, out, keep ? &(*contexts)[g] : nullptr);
  }
}

void Replicas::backward(const Batch& batch, const Tensor& grad, Contexts&& contexts, const ProcessGroup& group,
                        double scale) {
  fill_features(batch);
  if (batch.device) {
    backward_on_device(batch, grad, std::move(contexts), group, scale);
    return;
  }
  const LookupView local = local_batch(batch);
  int64_t total = 0;
  std::vector<int64_t> begin;
  for (const LocalShard& shard : groups_.shards()) {
    begin.push_back(total);
    total += shard.where.rows * (shard.where.cols + 1);
  }
  const Tensor buffer = reduce_.ensure(total).first({total});
  std::fill_n(buffer.data<float>(), total, 0.0f);
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const tsr_lookup lookup = local.of(features_[g]);
    const auto gradients = groups_.lookups()[g]->backward_rows(std::move(contexts[g]), lookup, grad, scale);
    for (size_t s = 0; s < groups_.shards().size(); ++s) {
      const LocalShard& shard = groups_.shards()[s];
      if (shard.group != static_cast<int>(g)) continue;
      const RowGradient& gradient = gradients[shard.index];
      float* dense = buffer.data<float>() + begin[s];
      float* seen = dense + shard.where.rows * shard.where.cols;
      for (int64_t i = 0; i < gradient.rows.numel(); ++i) {
        const int64_t row = gradient.rows.data<int64_t>()[i];
        std::copy_n(gradient.values.data<float>() + i * shard.where.cols, shard.where.cols,
                    dense + row * shard.where.cols);
        seen[row] = 1.0f;
      }
    }
  }
  if (group.world_size() > 1) group.all_reduce(buffer, ReduceOp::kSum, "data-parallel gradients").wait();
  for (size_t s = 0; s < groups_.shards().size(); ++s) apply_reduced(begin[s], groups_.shards()[s]);
  for (const auto& lookup : groups_.lookups()) lookup->count_step();
}

void Replicas::apply_reduced(int64_t begin, const LocalShard& shard) {
  Lookup& lookup = *groups_.lookups()[shard.group];
  if (lookup.options().optimizer.name.empty()) return;
  const int64_t cols = shard.where.cols;
  const float* dense = reduce_.data<float>() + begin;
  const float* seen = dense + shard.where.rows * cols;
  const int64_t count = shard.where.rows - std::count(seen, seen + shard.where.rows, 0.0f);
  RowGradient gradient{Tensor::empty({count}, DType::kInt64), Tensor::empty({count, cols})};
  int64_t i = 0;
  for (int64_t row = 0; row < shard.where.rows; ++row) {
    if (seen[row] == 0.0f) continue;
    gradient.rows.data<int64_t>()[i] = row;
    std::copy_n(dense + row * cols, cols, gradient.values.data<float>() + i * cols);
    ++i;
  }
  lookup.apply(shard.index, gradient);
}

std::vector<std::pair<std::string, Tensor>> Replicas::gradients() const {
  std::vector<std::pair<std::string, Tensor>> out;
  int64_t begin = 0;
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const LocalShard& shard = groups_.shards()[k];
    const std::vector<int64_t> shape{shard.where.rows, shard.where.cols};
    if (on_device_) {
      out.emplace_back(tables_[shard.table].name, device_gradient(k));
    } else if (reduce_.tensor().defined()) {
      out.emplace_back(
          tables_[shard.table].name,
          Tensor::from<float>(std::span<const float>(reduce_.data<float>() + begin, shape[0] * shape[1]), shape));
    }
    begin += shard.where.rows * (shard.where.cols + 1);
  }
  return out;
}

}  // namespace tessera
