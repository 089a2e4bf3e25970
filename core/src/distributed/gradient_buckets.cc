#include "distributed/gradient_buckets.h"

#include <algorithm>

#include "tessera/device.h"

namespace tessera {

GradientBuckets::GradientBuckets(ParameterList parameters, std::shared_ptr<ProcessGroup> group, int64_t bytes)
    : parameters_(std::move(parameters)), group_(std::move(group)) {
  if (group_->world_size() == 1) return;
  for (size_t i = 0; i < parameters_.size(); ++i) place_of_.emplace(parameters_[i].get(), i);
  finished_.resize(parameters_.size());
  for (size_t first = 0; first < parameters_.size();) {
    Bucket bucket{first, first, {}, 0, {}};
    DeviceStream* const place = parameters_[first]->value.stream();
    for (; bucket.last < parameters_.size() && parameters_[bucket.last]->value.stream() == place; ++bucket.last) {
      if (bucket.last > first && 4 * bucket.values >= bytes) break;
      bucket.values += parameters_[bucket.last]->value.numel();
    }
    const Shape shape{bucket.values + static_cast<int64_t>(bucket.last - first)};
    bucket.buffer = place ? place->empty(shape) : Tensor::empty(shape);
    int64_t at = 0;
    for (size_t i = first; i < bucket.last && !place; ++i) {
      Parameter& p = *parameters_[i];
      p.grad_buffer = bucket.buffer.narrow(at, p.value.numel()).reshape(p.value.shape());
      at += p.value.numel();
    }
    first = bucket.last;
    buckets_.push_back(std::move(bucket));
  }
}

CallSite GradientBuckets::site_of(const Bucket& bucket) {
  return {"dense gradients", bucket.first, Carries::kGradients};
}

void GradientBuckets::finished(const ParameterList& parameters) {
  if (buckets_.empty()) return;
  for (const ParameterPtr& p : parameters) finished_[place_of_.at(p.get())] = true;
  for (; started_ < buckets_.size(); ++started_) {
    Bucket& next = buckets_[buckets_.size() - 1 - started_];
    if (next.buffer.stream() != nullptr) return;
    for (size_t i = next.first; i < next.last; ++i) {
      if (!finished_[i]) return;
    }
    start(next);
  }
}

void GradientBuckets::all_finished() { finished(parameters_); }

void GradientBuckets::all_reduce(float scale) {
  all_finished();
  for (size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[buckets_.size() - 1 - i];
    if (bucket.buffer.stream() != nullptr) {
      reduce_on_device(bucket, scale);
      continue;
    }
    if (i >= started_) start(bucket);  // behind one on a device
    end(bucket, scale);
  }
  started_ = 0;
  finished_.assign(parameters_.size(), false);
}

void GradientBuckets::start(Bucket& bucket) const {
  float* flag = bucket.buffer.data<float>() + bucket.values;
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    Parameter& p = *parameters_[i];
    *flag++ = p.grad.defined() ? 1.0f : 0.0f;
    float* const place = p.grad_buffer.data<float>();
    if (!p.grad.defined()) {
      std::fill_n(place, p.value.numel(), 0.0f);
    } else if (p.grad.raw() != p.grad_buffer.raw()) {
      TESSERA_CHECK(p.grad.numel() == p.value.numel(), "a gradient is shaped like its parameter");
      std::copy_n(p.grad.data<float>(), p.grad.numel(), place);
    }
  }
  bucket.sum = group_->all_reduce(bucket.buffer, ReduceOp::kSum, site_of(bucket));
}

void GradientBuckets::end(Bucket& bucket, float scale) const {
  bucket.sum.wait();
  float* const sums = bucket.buffer.data<float>();
  const float* flag = sums + bucket.values;
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    if (*flag++ > 0) parameters_[i]->grad = parameters_[i]->grad_buffer;
  }
  if (scale == 1) return;
  for (int64_t i = 0; i < bucket.values; ++i) sums[i] *= scale;
}

// Copies in the order of the stream. Whether a rank has a gradient at all is not looked at, which would need a wait: a
// missing one counts as zeros, and afterwards all have one.
void GradientBuckets::reduce_on_device(const Bucket& bucket, float scale) {
  DeviceStream& stream = *bucket.buffer.stream();
  int64_t at = 0;
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    const Parameter& p = *parameters_[i];
    const Tensor piece = bucket.buffer.narrow(at, p.value.numel());
    if (p.grad.defined())
      stream.copy(p.grad, piece);
    else
      stream.fill(piece, 0);
    at += p.value.numel();
  }
  group_->all_reduce(bucket.buffer.narrow(0, at), ReduceOp::kSum, site_of(bucket)).wait();
  // grad := scale * sum, exactly: as a step along -sum from 0, in one call.
  auto* sum = static_cast<float*>(bucket.buffer.raw());
  updates_.clear();
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    Parameter& p = *parameters_[i];
    if (!p.grad.defined()) p.grad = stream.empty(p.value.shape());
    stream.fill(p.grad, 0);
    const int64_t n = p.value.numel();
    updates_.push_back({static_cast<float*>(p.grad.raw()), sum, {nullptr, nullptr}, 1, n, {scale, 0}});
    sum += n;
  }
  tsr_parameter_updates call{};
  call.struct_size = sizeof(call);
  call.device_index = bucket.buffer.device().index;
  call.formula = TSR_UPDATE_SGD;
  call.num_parameters = static_cast<uint32_t>(updates_.size());
  call.parameters = updates_.data();
  call.sign = -1;
  stream.update_parameters(call);
}

}  // namespace tessera
