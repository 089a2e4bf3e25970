#include "distributed/shard_groups.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace tessera {
namespace {

// Everything that one kernel instance has in common.
struct GroupKey {
  DType dtype;
  OptimizerSpec optimizer;
  std::string compute_kernel;
  std::optional<RowFormat> row_format;
  bool operator==(const GroupKey&) const = default;
};

constexpr uint32_t kOutput = 1;  // index in OwnerLookup::Rows

// Kernels that take one tensor of rows have none that stay.
std::span<const Tensor> taken_by(const Lookup& lookup, const OwnerLookup::Rows& rows) {
  return std::span(rows).first(lookup.places_rows() ? rows.size() : 1);
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

ShardGroups::ShardGroups(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                         const EmbeddingModuleShardingPlan& plan, int rank, bool replicas,
                         const ShardGroupOptions& options) {
  std::vector<GroupKey> keys;
  std::vector<LookupOptions> group_options;
  for (size_t t = 0; t < tables.size(); ++t) {
    const ParameterSharding& sharding = plan.at(tables[t].name);
    if ((sharding.combine == ParameterSharding::Combine::kReplica) != replicas) continue;
    GroupKey key{tables[t].data_type, tables[t].optimizer.name.empty() ? options.optimizer : tables[t].optimizer,
                 sharding.compute_kernel, tables[t].row_format};
    if (key.row_format) key.optimizer = {};  // it only infers
    for (size_t s = 0; s < sharding.shards.size(); ++s) {
      const ShardMetadata& where = sharding.shards[s];
      if (where.rank != rank) continue;  // one without rows is held, too: it has weights and states of no rows
      const auto at = std::find(keys.begin(), keys.end(), key);
      const auto group = static_cast<int>(at - keys.begin());
      if (at == keys.end()) {
        keys.push_back(key);
        LookupOptions o;
        o.kernel = options.kernel;
        o.compute_kernel = key.compute_kernel;
        o.stream = options.stream;
        o.weight_dtype = key.dtype;
        o.optimizer = key.optimizer;
        o.row_format = key.row_format;
        o.train = !key.row_format;
        o.seed = options.seed;
        group_options.push_back(std::move(o));
      }
      auto& group_tables = group_options[group].tables;
      shards_.push_back(
          {static_cast<int>(t), static_cast<int>(s), where, group, static_cast<int>(group_tables.size())});
      const double range = tables[t].init_range.value_or(1 / std::sqrt(static_cast<double>(tables[t].num_embeddings)));
      group_tables.push_back({tables[t].name, where.rows, where.cols, range});
    }
  }
  for (LookupOptions& o : group_options) lookups_.push_back(std::make_shared<Lookup>(runtime, std::move(o)));
}

const LocalShard* ShardGroups::find(int table, int shard) const {
  for (const LocalShard& s : shards_) {
    if (s.table == table && s.shard == shard) return &s;
  }
  return nullptr;
}

OwnerLookup::OwnerLookup(const LaneMap& map, ShardGroups& groups, int rank, int world_size, bool sequence)
    : groups_(groups),
      rank_(rank),
      first_stream_(map.stream_begin(rank)),
      world_size_(world_size),
      num_streams_(map.stream_begin(rank + 1) - map.stream_begin(rank)),
      sequence_(sequence) {
  for (int i = map.lane_begin(rank); i < map.lane_begin(rank + 1); ++i) {
    const Lane& lane = map.lanes()[i];
    const LocalShard* shard = groups.find(lane.table, lane.shard);
    TESSERA_CHECK(shard, "every lane of this rank has a shard here");
    lanes_.push_back({lane.stream - first_stream_, shard->group, shard->index, map.streams()[lane.stream].slot,
                      lane.col, lane.cols});
  }
}

void OwnerLookup::find_features(Step& step, const SlotLayout& layout) const {
  step.features.resize(groups_.lookups().size());
  for (auto& features : step.features) features.clear();
  for (int peer = 0; peer < world_size_; ++peer) {
    for (size_t k = 0; k < lanes_.size(); ++k) {
      const OwnLane& lane = lanes_[k];
      const size_t piece_index = static_cast<size_t>(peer) * num_streams_ + lane.stream;
      const StreamPiece& piece = step.received[piece_index];
      if (!piece.full_bags) continue;
      tsr_lookup_feature feature{};
      feature.table = lane.table;
      feature.pooling = sequence_ ? TSR_POOLING_NONE : TSR_POOLING_SUM;
      feature.bags = piece.full_bags;
      feature.first_offset = step.first_offset[piece_index];
      if (peer == rank_ && step.stays[lane.stream]) {
        feature.output = kOutput;
        feature.output_offset = layout.offset[lane.slot] + lane.col;
        feature.output_stride = layout.stride[lane.slot];
        feature.listed = piece.full_bags < piece.bags;
        if (feature.listed) {
          std::copy_n(step.bag_order.data() + step.lengths_begin[first_stream_ + lane.stream], piece.full_bags,
                      step.output_rows.data<int32_t>() + feature.first_offset);
        }
      } else {
        feature.output_offset = step.owner_begin[static_cast<size_t>(peer) * lanes_.size() + k];
        feature.output_stride = lane.cols;
      }
      step.features[lane.group].push_back(feature);
    }
  }
}

void OwnerLookup::forward(Step& step, const Rows& rows, bool keep_context) {
  step.contexts.clear();
  step.contexts.resize(groups_.lookups().size());
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    if (step.features[g].empty()) continue;
    const LookupView batch = received_batch(step);
    const tsr_lookup lookup = batch.of(step.features[g]);
    const bool keep = keep_context && groups_.lookups()[g]->options().train;
    groups_.lookups()[g]->forward(lookup, taken_by(*groups_.lookups()[g], rows), keep ? &step.contexts[g] : nullptr);
  }
}

void OwnerLookup::update(Step& step, Lookup::Context&& context, const Gradients& gradients) {
  Lookup& lookup = *groups_.lookups()[gradients.group];
  const LookupView batch = received_batch(step);
  const tsr_lookup ids = batch.of(gradients.features);
  if (lookup.updates_in_backward()) {
    lookup.backward(std::move(context), ids, taken_by(lookup, gradients.rows), gradients.scale);
    return;
  }
  const auto tables = lookup.backward_rows(std::move(context), ids, taken_by(lookup, gradients.rows), gradients.scale);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (tables[t].rows.numel()) lookup.apply(static_cast<int>(t), tables[t]);
  }
  lookup.count_step();
}

void OwnerLookup::backward(Step& step, const Rows& gradients, double grad_scale) {
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    if (step.features[g].empty())
      groups_.lookups()[g]->count_step();  // t of the formulas counts steps, not batches that had ids here
    else
      update(step, std::move(step.contexts[g]), {static_cast<int>(g), step.features[g], gradients, grad_scale});
  }
}

OwnerLookup::ShardSeconds& OwnerLookup::of(std::vector<ShardSeconds>& times, const AloneLookup& alone) const {
  const auto shard = std::find_if(groups_.shards().begin(), groups_.shards().end(), [&](const LocalShard& s) {
    return s.group == alone.group && s.index == alone.table;
  });
  return times[static_cast<size_t>(shard - groups_.shards().begin())];
}

void OwnerLookup::forward_alone(Step& step, const Rows& rows, std::vector<ShardSeconds>& times) {
  times.resize(groups_.shards().size());
  step.alone.clear();
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const size_t first = step.alone.size();
    for (const tsr_lookup_feature& f : step.features[g]) {
      auto at = std::find_if(step.alone.begin() + static_cast<std::ptrdiff_t>(first), step.alone.end(),
                             [&](const AloneLookup& a) { return a.table == f.table; });
      if (at == step.alone.end()) at = step.alone.insert(at, AloneLookup{static_cast<int>(g), f.table, {}, {}});
      at->features.push_back(f);
    }
  }
  for (AloneLookup& a : step.alone) {
    const double start = seconds_now();
    const LookupView batch = received_batch(step);
    const tsr_lookup lookup = batch.of(a.features);
    Lookup& of_group = *groups_.lookups()[a.group];
    of_group.forward(lookup, taken_by(of_group, rows), &a.context);
    of(times, a).lookup += seconds_now() - start;
  }
}

void OwnerLookup::backward_alone(Step& step, const Rows& gradients, double grad_scale,
                                 std::vector<ShardSeconds>& times) {
  for (AloneLookup& a : step.alone) {
    Lookup& lookup = *groups_.lookups()[a.group];
    const int64_t before = lookup.step();
    const double start = seconds_now();
    update(step, std::move(a.context), {a.group, a.features, gradients, grad_scale});
    of(times, a).update += seconds_now() - start;
    lookup.set_step(before);
  }
  for (const auto& lookup : groups_.lookups()) lookup->count_step();
  step.alone.clear();
}

}  // namespace tessera
