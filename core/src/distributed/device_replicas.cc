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
  to.first_offset.assign(wiring_.slots().size(), 0);
  for (size_t s = 0; s < wiring_.slots().size(); ++s) {
    if (!wiring_.slots()[s].replicated) continue;
    to.first_offset[s] = to.num_bags;
    to.num_ids += from.slots[s].ids;
    to.num_bags += from.slots[s].bags;
  }
  int64_t* ids = to.host_ids.ensure(to.num_ids).data<int64_t>();
  int64_t* offsets = to.host_offsets.ensure(to.num_bags + 1).data<int64_t>();
  float* weight = to.weighted ? to.host_weights.ensure(to.num_ids).data<float>() : nullptr;
  int64_t begin = 0;
  for (size_t s = 0; s < wiring_.slots().size(); ++s) {
    if (!wiring_.slots()[s].replicated) continue;
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

// How this rank's gradients go to the rows that are listed; uploads that and the rows.
void Replicas::list_moves() {
  DeviceRows& on = *on_device_;
  on.moves.clear();
  on.packed_begin.clear();
  int64_t packed = 0;
  for (size_t k = 0; k < groups_.shards().size(); ++k) {
    const int64_t cols = groups_.shards()[k].where.cols, count = listed_begin_[k + 1] - listed_begin_[k];
    on.moves.add_target(count, cols, sums_begin_[k], cols);
    const int64_t index = on.moves.add_index(count);
    on.moves.add_run(packed, index, 0, cols);
    on.packed_begin.push_back(packed);
    int32_t* to = on.moves.index(index);
    int32_t place = 0;
    touched_.for_each(k, [&](int64_t, bool mine) { *to++ = mine ? place++ : -1; });
    packed += place * cols;
  }
  upload(listed_, on.rows, listed_begin_.back(), on.stream);
  on.moves.upload({});
  on.uploaded.record();
  on.packed.ensure(packed);
}

void Replicas::backward_on_device(const Batch& batch, const Tensor& grad, Contexts&& contexts,
                                  const ProcessGroup& group, double scale) {
  if (!on_device_) {
    on_device_ = std::make_unique<DeviceRows>(batch.device->stream);
    listed_.pinned(on_device_->stream);
    sums_.on_device(on_device_->stream);
  }
  DeviceRows& on = *on_device_;
  on.uploaded.wait();
  list_rows();
  list_moves();
  const LookupView local = local_batch(batch);
  for (size_t g = 0; g < groups_.lookups().size(); ++g) {
    const tsr_lookup lookup = local.of(features_[g]);
    groups_.lookups()[g]->backward_rows(
        std::move(contexts[g]), lookup, grad, scale, [&](int table, const RowGradient& views) {
          const int64_t n = views.values.numel();
          const int64_t begin = on.packed_begin[shard_of_[g][static_cast<size_t>(table)]];
          if (n) on.stream->copy(views.values.reshape({n}), on.packed.tensor().narrow(begin, n));
        });
  }
  on.moves.combine(on.packed.tensor(), sums_.tensor().first({sums_begin_.back()}));
  reduce_and_apply(on.rows.tensor(), group);
}

}  // namespace tessera
