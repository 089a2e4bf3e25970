#include "distributed/device_staging.h"

namespace tessera {
namespace {

// Returns the first bytes of a buffer as a tensor with another tensor's shape and type.
Tensor like(Buffer& buffer, const Tensor& tensor) {
  const Tensor& memory = buffer.ensure(tensor.bytes());
  return Tensor::borrow(memory.raw(), tensor.shape(), tensor.dtype());
}

}  // namespace

void StagedExchange::finish() {
  if (target.defined()) {
    stream->copy(Tensor::borrow(recv.tensor().raw(), target.shape(), target.dtype()), target);
    copied.record();
  }
  drop();
}

StagedExchange& DeviceStaging::take(const DeviceStreamPtr& stream) {
  for (const auto& exchange : exchanges_) {
    if (exchange->busy || exchange->stream != stream) continue;
    exchange->copied.wait();
    exchange->busy = true;
    return *exchange;
  }
  exchanges_.push_back(std::make_unique<StagedExchange>(stream));
  exchanges_.back()->busy = true;
  return *exchanges_.back();
}

HostSides DeviceStaging::sides(const Tensor& send, const Tensor& recv, bool in_place) {
  if (!send.stream() && !recv.stream()) return {send, recv, nullptr};
  DeviceStream* stream = send.stream() ? send.stream() : recv.stream();
  StagedExchange& staged = take(stream->shared_from_this());
  HostSides out{send, recv, &staged};
  if (recv.stream()) {
    out.recv = like(staged.recv, recv);
    staged.target = recv;
  }
  if (in_place) {
    stream->copy(recv, out.recv);
    out.send = out.recv;
  } else if (send.stream()) {
    out.send = like(staged.send, send);
    stream->copy(send, out.send);
  }
  if (in_place || send.stream()) stream->synchronize();
  return out;
}

}  // namespace tessera
