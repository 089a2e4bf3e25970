// The fake device's arithmetic of training, as abi/draft/device_ops.h has it, value by value.
#include <cmath>
#include <vector>

#include "fake_device.h"

namespace tessera::test {
namespace {

double norm_of(const std::vector<tsr_gradient>& gradients, double p) {
  double total = 0;
  for (const tsr_gradient& g : gradients) {
    for (int64_t i = 0; i < g.count; ++i) {
      const double v = std::fabs(double{g.values[i]});
      if (!std::isinf(p))
        total += std::pow(v, p);
      else if (v > total || std::isnan(v))
        total = std::isnan(total) ? total : v;
    }
  }
  return std::isinf(p) ? total : std::pow(total, 1 / p);
}

void clip(const tsr_clipping& call, const std::vector<tsr_gradient>& gradients) {
  double factor = 1;
  if (call.norm != nullptr) {
    *call.norm = norm_of(gradients, call.norm_type);
    for (int i = 1; i < TSR_CLIP_DOUBLES; ++i) call.norm[i] = NAN;  // scratch for the call
    factor = call.max_gradient / (*call.norm + 1e-6);
    if (factor > 1) factor = 1;
  }
  const auto limit = static_cast<float>(call.max_gradient);
  for (const tsr_gradient& g : gradients) {
    for (int64_t i = 0; i < g.count; ++i) {
      float& v = g.values[i];
      if (call.mode == TSR_CLIP_BY_NORM) v *= static_cast<float>(factor);
      if (call.mode == TSR_CLIP_BY_VALUE && std::fabs(v) > limit) v = std::copysign(limit, v);
    }
  }
}

}  // namespace

void FakeDeviceThatTrains::update_parameters(const tsr_parameter_updates& updates, tsr_stream stream) {
  if (updates.formula != TSR_UPDATE_SGD) sdk::fail(TSR_UNIMPLEMENTED, "the fake device knows SGD");
  const std::vector<tsr_parameter_update> all(updates.parameters, updates.parameters + updates.num_parameters);
  stream_of(updates.device_index, stream).enqueue([all, sign = updates.sign, decay = updates.decay] {
    for (const tsr_parameter_update& p : all) {
      float* w = to_host_address(p.value);
      const float* g = to_host_address(p.gradient);
      for (int64_t i = 0; i < p.rows * p.columns; ++i) w[i] -= p.factors[0] * (sign * g[i] + decay * w[i]);
    }
  });
}

void FakeDeviceThatTrains::binary_cross_entropy(const tsr_binary_cross_entropy& raw, tsr_stream stream) {
  tsr_binary_cross_entropy loss = raw;
  loss.logits = to_host_address(raw.logits);
  loss.labels = to_host_address(raw.labels);
  loss.grad = to_host_address(raw.grad);
  loss.sum = to_host_address(raw.sum);
  stream_of(raw.device_index, stream).enqueue([loss] {
    *loss.sum = 0;
    for (int64_t i = 0; i < loss.n; ++i) {
      const float x = loss.logits[i], y = loss.labels[i];
      *loss.sum += std::fmax(x, 0.0f) - x * y + std::log1p(std::exp(-std::fabs(x)));
      if (loss.grad != nullptr) loss.grad[i] = static_cast<float>(loss.scale) * (1 / (1 + std::exp(-x)) - y);
    }
  });
}

void FakeDeviceThatTrains::clip_gradients(const tsr_clipping& raw, tsr_stream stream) {
  std::vector<tsr_gradient> gradients(raw.gradients, raw.gradients + raw.num_gradients);
  for (tsr_gradient& g : gradients) g.values = to_host_address(g.values);
  tsr_clipping call = raw;
  call.norm = to_host_address(raw.norm);
  stream_of(raw.device_index, stream).enqueue([call, gradients] { clip(call, gradients); });
}

}  // namespace tessera::test
