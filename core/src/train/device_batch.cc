#include "train/device_batch.h"

#include <algorithm>

namespace tessera {

DeviceBatch::Inputs DeviceBatch::take(const Batch& batch, size_t label) {
  const int64_t dense = batch.dense.numel(), labels = batch.labels.numel(), n = dense + labels;
  Pinned& pinned = pinned_[next_++ % pinned_.size()];
  if (pinned.copied) pinned.copied->wait();
  if (!pinned.memory.defined() || pinned.memory.numel() < n) pinned.memory = stream_->host_1d(n, DType::kFloat32);
  if (!memory_.defined() || memory_.numel() < n) memory_ = stream_->empty({n});
  if (!pinned.copied) pinned.copied = std::make_unique<DeviceStream::Event>(stream_);
  std::copy_n(batch.dense.data<float>(), dense, pinned.memory.data<float>());
  std::copy_n(batch.label(label).data<float>(), labels, pinned.memory.data<float>() + dense);
  stream_->copy(pinned.memory.narrow(0, n), memory_.narrow(0, n));
  pinned.copied->record();
  return {memory_.first(batch.dense.shape()), memory_.narrow(dense, labels)};
}

}  // namespace tessera
