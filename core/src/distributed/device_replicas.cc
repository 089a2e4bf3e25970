// Data-parallel tables on a device. The host has the batch, so it knows without waiting which rows a step touches; what
// it cannot know are the other ranks' rows, which it asks them for. Gradients of the rows that any rank had lie one
// behind the other: that is what ranks reduce, and what the optimizer gets.
#include <algorithm>

#include "distributed/replicas.h"
#include "modules/lookup_view.h"
#include "sparse/arrays.h"

namespace tessera {
namespace {

void upload(const Buffer& from, Buffer& to, int64_t n, const DeviceStreamPtr& stream) {
  to.ensure(n);
  if (n) stream->copy(from.tensor().first({n}), to.tensor().first({n}));
}

}  // namespace

// Only the slots of replicas, one behind the other: the others' ids are of no use here.
void Replicas::upload_batch(const Batch& batch) const {
  DeviceStep& device = *batch.device;
  ReplicaBatch& to = device.replicas;
  const CheckedBatch& from = batch.checked;
  const Tensor& weights = from.clean() ? from.weights : from.mean_weights;
  to.weighted = batch.weighted || !from.clean();
  to.num_ids = to.num_bags = 0;
  to.first_offset.assign(map_.slots().size(), 0);
  for (size_t s = 0; s < map_.slots().size(); ++s) {
    if (!map_.slots()[s].replicated) continue;
    to.first_offset[s] = to.num_bags;
    to.num_ids += from.slots[s].ids;
    to.num_bags += from.slots[s].bags;
  }
  int64_t* ids = to.host_ids.ensure(to.num_ids).data<int64_t>();
  int64_t* offsets = to.host_offsets.ensure(to.num_bags + 1).data<int64_t>();
  float* weight = to.weighted ? to.host_weights.ensure(to.num_ids).data<float>() : nullptr;
  int64_t begin = 0;
  for (size_t s = 0; s < map_.slots().size(); ++s) {
    if (!map_.slots()[s].replicated) continue;
    const SlotBags& bags = from.slots[s];
    for (int64_t b = 0; b < bags.bags; ++b)
      *offsets++ = begin + sparse::integer_at(from.offsets, bags.first_bag + b) - bags.first_id;
    for (int64_t i = 0; i < bags.ids; ++i) *ids++ = sparse::integer_at(from.values, bags.first_id + i);
    if (weight) weight = std::copy_n(weights.data<float>() + bags.first_id, bags.ids, weight);
    begin += bags.ids;
  }
  *offsets = begin;
  upload(to.host_ids, to.ids, to.num_ids, device.stream);
  upload(to.host_offsets, to.offsets, to.num_bags + 1, device.stream);
  if (to.weighted) upload(to.host_weights, to.weights, to.num_ids, device.stream);
  device.uploaded.record();
}

int64_t Replicas::all_rows() const {
  int64_t rows = 0;
  for (const LocalShard& shard : groups_.shards()) rows += shard.where.rows;
  return rows;
}

// Which rows this rank had, and which any had; how gradients go from the former to the latter.
void Replicas::find_rows(const Batch& batch, const ProcessGroup& group) {
  DeviceRows& on = *on_device_;
  const int64_t rows = all_rows();
  const Tensor seen = reduce_.ensure(rows).first({rows});
  std::fill_n(seen.data<float>(), rows, 0.0f);
  std::vector<int64_t> first_row(tables_.size());
  int64_t first = 0;
  for (const LocalShard& shard : groups_.shards()) {
    first_row[shard.table] = first;
    first += shard.where.rows;
  }
  for (size_t s = 0; s < map_.slots().size(); ++s) {
    const Slot& slot = map_.slots()[s];
    const SlotBags& bags = batch.checked.slots[s];
    for (int64_t i = 0; slot.replicated && i < bags.ids; ++i)
      seen.data<float>()[first_row[slot.table] + sparse::integer_at(batch.checked.values, bags.first_id + i)] = 1.0f;
  }
  on.place.assign(static_cast<size_t>(rows), -1);
  int64_t row = 0;
  for (const LocalShard& shard : groups_.shards()) {
    int32_t place = 0;
    for (const int64_t end = row + shard.where.rows; row < end; ++row)
      if (seen.data<float>()[row] != 0.0f) on.place[static_cast<size_t>(row)] = place++;
  }
  if (group.world_size() > 1) group.all_reduce(seen, ReduceOp::kSum, "data-parallel rows").wait();
}

// Lists the rows that any rank had, and where their gradients come from and go to; uploads both. Returns how many
// elements they have.
int64_t Replicas::list_rows() {
  DeviceRows& on = *on_device_;
  const float* seen = reduce_.data<float>();
  const int64_t all = all_rows();
  on.uploaded.wait();
  int64_t* list = on.host_rows.ensure(all - std::count(seen, seen + all, 0.0f)).data<int64_t>();
  on.moves.clear();
  on.begin.assign(1, 0);
  on.packed_begin.clear();
  int64_t first = 0, packed = 0, sums = 0;
  for (const LocalShard& shard : groups_.shards()) {
    const int64_t cols = shard.where.cols, rows = shard.where.rows;
    const int64_t count = rows - std::count(seen + first, seen + first + rows, 0.0f);
    on.moves.add_target(count, cols, sums, cols);
    const int64_t index = on.moves.add_index(count);
    on.moves.add_run(packed, index, 0, cols);
    on.packed_begin.push_back(packed);
    int64_t at = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (seen[first + r] == 0.0f) continue;
      const int32_t place = on.place[static_cast<size_t>(first + r)];
      if (place >= 0) packed += cols;
      on.moves.index(index)[at++] = place;
      *list++ = r;
    }
    on.begin.push_back(on.begin.back() + count);
    first += rows;
    sums += count * cols;
  }
  upload(on.host_rows, on.rows, on.begin.back(), on.stream);
  on.moves.upload({});
  on.uploaded.record();
  on.packed.ensure(packed);
  on.sums.ensure(sums);
  return sums;
}

void Replicas::backward_on_device(const Batch& batch, const Tensor& grad, Contexts&& contexts,
                                  const ProcessGroup& group, double scale) {
  if (!on_device_) on_device_ = std::make_unique<DeviceRows>(batch.device->stream);
  DeviceRows& on = *on_device_;
  find_rows(batch, group);
  const int64_t elements = list_rows();
  const LookupView local = local_batch(batch);
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const tsr_lookup lookup = local.of(features_[g]);
    groups_.lookups()[g]->backward_rows(
        std::move(contexts[g]), lookup, grad, scale, [&](int table, const RowGradient& views) {
          const int64_t n = views.values.numel();
          const auto shard = std::find_if(groups_.shards().begin(), groups_.shards().end(), [&](const LocalShard& s) {
            return s.group == static_cast<int>(g) && s.index == table;
          });
          const auto k = static_cast<size_t>(shard - groups_.shards().begin());
          if (n) on.stream->copy(views.values.reshape({n}), on.packed.tensor().narrow(on.packed_begin[k], n));
        });
  }
  const Tensor sums = on.sums.tensor().first({elements});
  on.moves.combine(on.packed.tensor(), sums);
  if (elements && group.world_size() > 1) group.all_reduce(sums, ReduceOp::kSum, "data-parallel gradients").wait();
  int64_t at = 0;
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const LocalShard& shard = groups_.shards()[k];
    Lookup& lookup = *groups_.lookups()[shard.group];
    const int64_t count = on.begin[k + 1] - on.begin[k], n = count * shard.where.cols;
    if (count && !lookup.options().optimizer.name.empty()) {
      lookup.apply(shard.index, {on.rows.tensor().narrow(on.begin[k], count),
                                 sums.narrow(at, n).reshape({count, shard.where.cols})});
    }
    at += n;
  }
  for (const auto& lookup : groups_.lookups()) lookup->count_step();
}

Tensor Replicas::device_gradient(size_t shard) const {
  const DeviceRows& on = *on_device_;
  int64_t first = 0;
  for (size_t k = 0; k < shard; ++k) first += (on.begin[k + 1] - on.begin[k]) * groups_.shards()[k].where.cols;
  const ShardMetadata& where = groups_.shards()[shard].where;
  const int64_t begin = on.begin[shard], count = on.begin[shard + 1] - begin;
  Tensor out = Tensor::zeros({where.rows, where.cols});
  if (!count) return out;
  const Tensor sums = on.stream->to_host(on.sums.tensor().narrow(first, count * where.cols));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = on.host_rows.data<int64_t>()[begin + i];
    std::copy_n(sums.data<float>() + i * where.cols, where.cols, out.data<float>() + row * where.cols);
  }
  return out;
}

}  // namespace tessera
