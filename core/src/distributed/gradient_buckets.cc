#include "distributed/gradient_buckets.h"

#include <algorithm>

#include "tessera/device.h"
#include "tessera/sdk/half.h"

namespace tessera {

GradientBuckets::GradientBuckets(ParameterList parameters, std::shared_ptr<ProcessGroup> group,
                                 const BucketOptions& options)
    : parameters_(std::move(parameters)), group_(std::move(group)), rounded_(options.rounded) {
  for (const ParameterPtr& p : parameters_) {
    if (rounded_ && p->value.stream())
      fail(Code::kUnimplemented, "comm.lossy: \"dense_gradients\" needs the dense layers in host memory, but they are ",
           "on a device: set job.device = \"cpu\", or leave \"dense_gradients\" out");
  }
  if (group_->world_size() == 1) return;
  for (size_t i = 0; i < parameters_.size(); ++i) place_of_.emplace(parameters_[i].get(), i);
  finished_.resize(parameters_.size());
  for (size_t first = 0; first < parameters_.size();) {
    Bucket bucket{first, first, {}, 0, {}, {}};
    DeviceStream* const place = parameters_[first]->value.stream();
    for (; bucket.last < parameters_.size() && parameters_[bucket.last]->value.stream() == place; ++bucket.last) {
      if (bucket.last > first && 4 * bucket.values >= options.bytes) break;
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
    if (rounded_) make_rounded(bucket);
    first = bucket.last;
    buckets_.push_back(std::move(bucket));
  }
}

void GradientBuckets::make_rounded(Bucket& bucket) const {
  const int64_t count = bucket.buffer.numel(), world = group_->world_size();
  Rounded& r = bucket.rounded;
  for (int64_t rank = 0; rank < world; ++rank) r.shares.push_back(count * (rank + 1) / world - count * rank / world);
  const int64_t own = r.shares[static_cast<size_t>(group_->rank())];
  r.own.assign(static_cast<size_t>(world), own);
  r.all = Tensor::empty({count}, DType::kBFloat16);
  r.parts = Tensor::empty({world * own}, DType::kBFloat16);
  r.sums = Tensor::empty({own}, DType::kBFloat16);
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
    if (i >= started_) start(bucket);  // finished() did not start it, because a bucket on a device comes first
    add_up(bucket);
    if (!rounded_) end(bucket, scale);
  }
  for (size_t i = buckets_.size(); rounded_ && i-- > 0;) end(buckets_[i], scale);
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
  if (!rounded_) {
    bucket.sum = group_->all_reduce(bucket.buffer, ReduceOp::kSum, site_of(bucket));
    return;
  }
  Rounded& r = bucket.rounded;
  const float* const from = bucket.buffer.data<float>();
  auto* const to = static_cast<uint16_t*>(r.all.raw());
  for (int64_t i = 0; i < bucket.buffer.numel(); ++i) to[i] = sdk::float_to_bfloat16(from[i]);
  bucket.sum = group_->all_to_all_v(r.all, r.shares, r.parts, r.own, site_of(bucket));
}

void GradientBuckets::add_up(Bucket& bucket) const {
  if (!rounded_) return;
  Rounded& r = bucket.rounded;
  bucket.sum.wait();
  const int64_t own = r.sums.numel();
  float* const sums = bucket.buffer.data<float>();  // its values were sent, so it is scratch here
  const auto* part = static_cast<const uint16_t*>(r.parts.raw());
  for (int64_t i = 0; i < own; ++i) sums[i] = sdk::bfloat16_to_float(part[i]);
  for (int rank = 1; rank < group_->world_size(); ++rank) {
    part += own;
    for (int64_t i = 0; i < own; ++i) sums[i] += sdk::bfloat16_to_float(part[i]);
  }
  auto* const to = static_cast<uint16_t*>(r.sums.raw());
  for (int64_t i = 0; i < own; ++i) to[i] = sdk::float_to_bfloat16(sums[i]);
  CallSite sums_of = site_of(bucket);
  sums_of.label = "sums of dense gradients";
  bucket.sum = group_->all_gather_v(r.sums, r.all, r.shares, sums_of);
}

void GradientBuckets::end(Bucket& bucket, float scale) const {
  bucket.sum.wait();
  float* const sums = bucket.buffer.data<float>();
  const auto* const rounded = rounded_ ? static_cast<const uint16_t*>(bucket.rounded.all.raw()) : nullptr;
  for (int64_t i = 0; rounded_ && i < bucket.buffer.numel(); ++i) sums[i] = sdk::bfloat16_to_float(rounded[i]);
  const float* flag = sums + bucket.values;
  for (size_t i = bucket.first; i < bucket.last; ++i) {
    if (*flag++ > 0) parameters_[i]->grad = parameters_[i]->grad_buffer;
  }
  if (scale == 1) return;
  for (int64_t i = 0; i < bucket.values; ++i) sums[i] *= scale;
}

// Copies and reduces in stream order. It does not look whether a rank has a gradient, because that would need a wait: a
// missing gradient counts as zeros, and afterwards every parameter has one.
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
  // This sets grad to scale * sum exactly, as a step along -sum from 0, in one call.
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
