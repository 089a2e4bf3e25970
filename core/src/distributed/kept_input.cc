#include "distributed/kept_input.h"

namespace tessera {

KeptInput::KeptInput(const DeviceStreamPtr& stream) {
  host_offsets_.pinned(stream);
  for (Buffer* buffer : {&offsets_there_, &ids_there_, &weights_there_}) buffer->on_device(stream);
}

void KeptInput::take(const Wiring& wiring, const RoutedBatch& batch, RowExecutor& executor) {
  int64_t num_offsets = 0;
  first_offset_.clear();
  for (int k = 0; k < std::ssize(wiring.kept()); ++k) {
    first_offset_.push_back(num_offsets);
    num_offsets += batch.sent[wiring.kept_stream(k)].full_bags + 1;
  }
  int64_t* offset = host_offsets_.ensure(num_offsets).data<int64_t>();
  for (int k = 0; k < std::ssize(wiring.kept()); ++k) {
    const size_t stream = wiring.kept_stream(k);
    const int32_t* lengths = batch.lengths.data() + batch.lengths_begin[stream];
    const int32_t* bags = batch.bag_order.data() + batch.lengths_begin[stream];
    int64_t at = batch.sent[stream].first_id;
    for (int64_t i = 0; i < batch.sent[stream].full_bags; ++i) {
      *offset++ = at;
      at += lengths[bags[i]];
    }
    *offset++ = at;
  }
  offsets_ = executor.upload(host_offsets_, offsets_there_, num_offsets);
  ids_ = executor.upload(batch.kept_ids, ids_there_, batch.num_kept_ids);
  weights_ = batch.weighted ? executor.upload(batch.kept_weights, weights_there_, batch.num_kept_ids) : Tensor();
}

}  // namespace tessera
