#include "distributed/shard_groups.h"

#include <algorithm>

#include "distributed/stopwatch.h"

namespace tessera {
namespace {

constexpr uint32_t kOutput = 1;  // index in OwnerLookup::Rows

// Returns the tensors of rows that a kernel is given. Kernels that take only one tensor have no local rows.
std::span<const Tensor> taken_by(const Lookup& lookup, const OwnerLookup::Rows& rows) {
  return std::span(rows).first(lookup.places_rows() ? rows.size() : 1);
}

}  // namespace

ShardGroups::ShardGroups(const Runtime& runtime, LocalShards local) : shards_(std::move(local.shards)) {
  for (LookupOptions& group : local.groups) lookups_.push_back(std::make_shared<Lookup>(runtime, std::move(group)));
}

const LocalShard* ShardGroups::find(int table, int shard) const {
  const auto key = [](const LocalShard& s) { return std::pair(s.table, s.shard); };
  const auto at = std::ranges::lower_bound(shards_, std::pair(table, shard), {}, key);
  return at != shards_.end() && key(*at) == std::pair(table, shard) ? &*at : nullptr;
}

void OwnerBatch::take(const ReceivedBatch& received, RowExecutor& executor) {
  taken_ids = executor.upload(received.ids, ids, received.num_ids);
  taken_offsets = executor.upload(received.offsets, offsets, received.num_offsets);
  taken_weights = received.weighted ? executor.upload(received.weights, weights, received.num_ids) : Tensor();
}

LookupView OwnerBatch::view(const OwnerCalls& calls) const {
  return {taken_ids, taken_offsets, taken_weights, calls.output_rows.tensor().first({taken_offsets.numel()})};
}

OwnerLookup::OwnerLookup(const RankWiring& own, ShardGroups& groups) : own_(own), groups_(groups) {
  for (int i = own.first_row_route; i < own.first_row_route + own.num_row_routes; ++i) {
    const RowRoute& row_route = own.wiring.row_routes()[i];
    const LocalShard* shard = groups.find(row_route.table, row_route.shard);
    TESSERA_CHECK(shard, "every row route of this rank has a shard here");
    row_routes_.push_back({row_route.id_route - own.first_id_route, shard->group, shard->index,
                           own.wiring.id_routes()[row_route.id_route].table_feature, row_route.col, row_route.cols});
  }
}

void OwnerLookup::prefetch(const ReceivedBatch& received, OwnerCalls& calls) const {
  const auto& lookups = groups_.lookups();
  if (std::none_of(lookups.begin(), lookups.end(), [](const auto& l) { return l->prefetches(); })) return;
  const LookupView batch(received.ids.tensor().first({received.num_ids}),
                         received.offsets.tensor().first({received.num_offsets}), {});
  for (size_t g = 0; g < lookups.size(); ++g) {
    if (!lookups[g]->prefetches()) continue;
    std::vector<tsr_lookup_feature>& features = calls.early;
    features.clear();
    for (size_t first = 0; first < received.id_blocks.size(); first += own_.num_id_routes) {
      for (const OwnRowRoute& row_route : row_routes_) {
        if (row_route.group != static_cast<int>(g)) continue;
        const size_t id_block = first + row_route.id_route;
        tsr_lookup_feature& feature = features.emplace_back();
        feature.table = row_route.table;
        feature.bags = received.id_blocks[id_block].full_bags;
        feature.first_offset = received.first_offset[id_block];
      }
    }
    lookups[g]->prefetch(batch.of(features));
  }
}

void OwnerLookup::find_features(const Places& places, OwnerCalls& calls) const {
  const auto& [routed, received, wire, output] = places;
  calls.output_rows.ensure(received.offsets.tensor().numel());
  calls.features.resize(groups_.lookups().size());
  for (auto& features : calls.features) features.clear();
  for (int peer = 0; peer < own_.wiring.world_size(); ++peer) {
    for (size_t k = 0; k < row_routes_.size(); ++k) {
      const OwnRowRoute& row_route = row_routes_[k];
      const size_t id_block_index = static_cast<size_t>(peer) * own_.num_id_routes + row_route.id_route;
      const IdBlock& id_block = received.id_blocks[id_block_index];
      if (!id_block.full_bags) continue;
      tsr_lookup_feature feature{};
      feature.table = row_route.table;
      feature.pooling = own_.wiring.sequence() ? TSR_POOLING_NONE : TSR_POOLING_SUM;
      feature.bags = id_block.full_bags;
      feature.first_offset = received.first_offset[id_block_index];
      if (peer == own_.rank && own_.local_rows[row_route.id_route]) {
        feature.output = kOutput;
        feature.output_offset = output.offset[row_route.table_feature] + row_route.col;
        feature.output_stride = output.stride[row_route.table_feature];
        feature.listed = id_block.full_bags < id_block.bags;
        if (feature.listed) {
          std::copy_n(routed.bag_order.data() + routed.lengths_begin[own_.first_id_route + row_route.id_route],
                      id_block.full_bags, calls.output_rows.data<int32_t>() + feature.first_offset);
        }
      } else {
        feature.output_offset = wire.owner_begin[static_cast<size_t>(peer) * row_routes_.size() + k];
        feature.output_stride = row_route.cols;
      }
      calls.features[row_route.group].push_back(feature);
    }
  }
}

// True if nothing was asked of the group, so that the step leaves it unchanged.
bool OwnerLookup::idle(size_t group, const OwnerCalls& calls) const { return calls.features[group].empty(); }

void OwnerLookup::forward(const LookupView& batch, const Rows& rows, bool keep_context, OwnerCalls& calls) {
  calls.contexts.clear();
  calls.contexts.resize(groups_.lookups().size());
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    if (idle(g, calls)) continue;
    const tsr_lookup lookup = batch.of(calls.features[g]);
    const bool keep = keep_context && groups_.lookups()[g]->options().train;
    groups_.lookups()[g]->forward(lookup, taken_by(*groups_.lookups()[g], rows), keep ? &calls.contexts[g] : nullptr);
  }
}

void OwnerLookup::update(const LookupView& batch, Lookup::Context&& context, const Gradients& gradients) {
  Lookup& lookup = *groups_.lookups()[gradients.group];
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

void OwnerLookup::backward(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls) {
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    if (idle(g, calls))
      groups_.lookups()[g]->count_step();  // the optimizer's t counts steps, also those without ids for this rank
    else
      update(batch, std::move(calls.contexts[g]), {static_cast<int>(g), calls.features[g], gradients, grad_scale});
  }
}

OwnerLookup::ShardSeconds& OwnerLookup::of(std::vector<ShardSeconds>& times, const AloneLookup& alone) const {
  const auto shard = std::find_if(groups_.shards().begin(), groups_.shards().end(), [&](const LocalShard& s) {
    return s.group == alone.group && s.index == alone.table;
  });
  return times[static_cast<size_t>(shard - groups_.shards().begin())];
}

void OwnerLookup::forward_alone(const LookupView& batch, const Rows& rows, OwnerCalls& calls,
                                std::vector<ShardSeconds>& times) {
  times.resize(groups_.shards().size());
  calls.alone.clear();
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const size_t first = calls.alone.size();
    for (const tsr_lookup_feature& f : calls.features[g]) {
      auto at = std::find_if(calls.alone.begin() + static_cast<std::ptrdiff_t>(first), calls.alone.end(),
                             [&](const AloneLookup& a) { return a.table == f.table; });
      if (at == calls.alone.end()) at = calls.alone.insert(at, AloneLookup{static_cast<int>(g), f.table, {}, {}});
      at->features.push_back(f);
    }
    if (calls.alone.size() == first && !idle(g, calls)) calls.alone.push_back({static_cast<int>(g), 0, {}, {}});
  }
  for (AloneLookup& a : calls.alone) {
    const Stopwatch watch;
    const tsr_lookup lookup = batch.of(a.features);
    Lookup& of_group = *groups_.lookups()[a.group];
    of_group.forward(lookup, taken_by(of_group, rows), &a.context);
    of(times, a).lookup += watch.seconds();
  }
}

void OwnerLookup::backward_alone(const LookupView& batch, const Rows& gradients, double grad_scale, OwnerCalls& calls,
                                 std::vector<ShardSeconds>& times) {
  for (AloneLookup& a : calls.alone) {
    Lookup& lookup = *groups_.lookups()[a.group];
    const int64_t before = lookup.step();
    const Stopwatch watch;
    update(batch, std::move(a.context), {a.group, a.features, gradients, grad_scale});
    of(times, a).update += watch.seconds();
    lookup.set_step(before);
  }
  for (const auto& lookup : groups_.lookups()) lookup->count_step();
  calls.alone.clear();
}

}  // namespace tessera
