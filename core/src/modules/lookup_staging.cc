#include "modules/lookup_staging.h"

namespace tessera {
namespace {

Tensor borrowed(const DLTensor& view) {
  const Shape shape(view.shape, view.shape + view.ndim);
  return Tensor::borrow(static_cast<char*>(view.data) + view.byte_offset, shape, from_dl(view.dtype));
}

}  // namespace

const tsr_lookup* LookupStaging::batch(const tsr_lookup& lookup) {
  if (!stream_) return &lookup;
  batch_ = lookup;
  batch_.struct_size = sizeof(batch_);
  batch_.ids = input(lookup.ids);
  batch_.offsets = input(lookup.offsets);
  batch_.weights = input(lookup.weights);
  return &batch_;
}

const DLTensor* LookupStaging::input(const DLTensor* tensor) {
  if (!stream_ || !tensor || tensor->device.device_type != kDLCPU) return tensor;
  Copy& copy = copies_.emplace_back();
  copy.host = borrowed(*tensor);
  copy.device = stream_->empty(copy.host.shape(), copy.host.dtype());
  copy.view = copy.device.dl();
  copy.back = false;
  stream_->copy(copy.host, copy.device);
  return &copy.view;
}

const DLTensor* LookupStaging::output(const DLTensor* tensor) {
  const DLTensor* staged = input(tensor);
  if (staged != tensor) copies_.back().back = true;
  return staged;
}

LookupStaging::~LookupStaging() {
  if (copies_.empty()) return;
  try {  // an error is already being thrown, and the device still reads the caller's memory
    stream_->synchronize();
  } catch (const Error&) {
  }
}

void LookupStaging::finish() {
  if (copies_.empty()) return;
  for (const Copy& copy : copies_) {
    if (copy.back) stream_->copy(copy.device, copy.host);
  }
  stream_->synchronize();
  copies_.clear();
}

Tensor view_of(const DLTensor& view, DeviceStream* stream) {
  if (!stream || view.device.device_type == kDLCPU) return borrowed(view);
  const Shape shape(view.shape, view.shape + view.ndim);
  return stream->borrow(static_cast<char*>(view.data) + view.byte_offset, shape, from_dl(view.dtype));
}

Tensor host_copy_of(const DLTensor& view, DeviceStream* stream) {
  const Tensor tensor = view_of(view, stream);
  return tensor.stream() ? stream->to_host(tensor) : tensor.clone();
}

}  // namespace tessera
