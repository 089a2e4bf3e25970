#include "distributed/device_step.h"

#include <algorithm>

#include "distributed/step.h"

namespace tessera {
namespace {

void copy_up(const Buffer& from, Buffer& to, int64_t n, const DeviceStreamPtr& stream) {
  to.ensure(n);
  if (n) stream->copy(from.tensor().first({n}), to.tensor().first({n}));
}

}  // namespace

void place_on_device(Step& step, const DeviceStreamPtr& stream) {
  step.device = std::make_unique<DeviceStep>(stream);
  for (Buffer* buffer : {&step.received.ids, &step.received.offsets, &step.received.weights}) buffer->pinned(stream);
  step.rows.on_device(stream);
}

void upload_step(Step& step) {
  DeviceStep& device = *step.device;
  const ReceivedBatch& in = step.received;
  copy_up(in.ids, device.ids, in.num_ids, device.stream);
  copy_up(in.offsets, device.offsets, in.num_offsets, device.stream);
  if (in.weighted) copy_up(in.weights, device.weights, in.num_ids, device.stream);
  device.output.list(step.output);
  device.output.upload(step.output.scales);
  device.host_sums.list(step.host_sums);
  device.host_sums.upload({});
  device.uploaded.record();
}

Tensor gradient_on_device(const Tensor& grad, Step& step) {
  if (grad.stream()) return grad;
  DeviceStep& device = *step.device;
  const int64_t n = grad.numel();
  std::copy_n(grad.data<float>(), n, device.host_grad.ensure(n).data<float>());
  copy_up(device.host_grad, device.grad, n, device.stream);
  device.uploaded.record();
  return device.grad.tensor().first({n});
}

}  // namespace tessera
