#include "distributed/replicated_input.h"

namespace tessera {

ReplicatedInput::ReplicatedInput(const DeviceStreamPtr& stream) {
  host_offsets_.pinned(stream);
  for (Buffer* buffer : {&offsets_there_, &ids_there_, &weights_there_}) buffer->on_device(stream);
}

void ReplicatedInput::take(const Wiring& wiring, const RoutedBatch& batch, RowExecutor& executor) {
  int64_t num_offsets = 0;
  first_offset_.clear();
  for (int k = 0; k < std::ssize(wiring.replicated_rows()); ++k) {
    first_offset_.push_back(num_offsets);
    num_offsets += batch.sent[wiring.replicated_route(k)].full_bags + 1;
  }
  int64_t* offset = host_offsets_.ensure(num_offsets).data<int64_t>();
  for (int k = 0; k < std::ssize(wiring.replicated_rows()); ++k) {
    const size_t route = wiring.replicated_route(k);
    const int32_t* lengths = batch.lengths.data() + batch.lengths_begin[route];
    const int32_t* bags = batch.bag_order.data() + batch.lengths_begin[route];
    int64_t at = batch.sent[route].first_id;
    for (int64_t i = 0; i < batch.sent[route].full_bags; ++i) {
      *offset++ = at;
      at += lengths[bags[i]];
    }
    *offset++ = at;
  }
  offsets_ = executor.upload(host_offsets_, offsets_there_, num_offsets);
  ids_ = executor.upload(batch.replicated_ids, ids_there_, batch.num_replicated_ids);
  weights_ =
      batch.weighted ? executor.upload(batch.replicated_weights, weights_there_, batch.num_replicated_ids) : Tensor();
}

}  // namespace tessera
