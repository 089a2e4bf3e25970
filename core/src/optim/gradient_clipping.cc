#include <algorithm>
#include <cmath>
#include <utility>

#include "tessera/device.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

// Sums are in double and in eight lanes, because compilers do not reorder sums.
constexpr int64_t kLanes = 8;

template <class Term>
double sum_of(const float* x, int64_t n, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) lanes[k] += term(x[i + k]);
  }
  for (; i < n; ++i) lanes[0] += term(x[i]);
  double total = 0;
  for (double lane : lanes) total += lane;
  return total;
}

// The larger value; NaN if one of them is NaN.
double larger(double a, double b) { return a > b || std::isnan(a) ? a : b; }

double largest(const float* x, int64_t n) {
  double out = 0;
  for (int64_t i = 0; i < n; ++i) out = larger(out, std::abs(x[i]));
  return out;
}

// A gradient, and the memory in which the host reads and writes it. Gradients on a device are copied to the host and
// back if the device does not clip, or not all gradients are on it.
struct Side {
  const Tensor& grad;
  Tensor host;
};

std::vector<Side> sides_of(const std::vector<Tensor>& grads) {
  std::vector<Side> out;
  for (const Tensor& grad : grads) out.push_back({grad, in_host_memory(grad)});
  return out;
}

double total_norm(const std::vector<Side>& sides, double p) {
  double total = 0;
  for (const Side& side : sides) {
    const float* x = side.host.data<float>();
    const int64_t n = side.host.numel();
    if (std::isinf(p)) {
      total = larger(total, largest(x, n));
    } else if (p == 2) {
      total += sum_of(x, n, [](float v) { return static_cast<double>(v) * v; });
    } else {
      total += sum_of(x, n, [p](float v) { return std::pow(std::abs(static_cast<double>(v)), p); });
    }
  }
  if (std::isinf(p)) return total;
  return p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
}

// The stream of all gradients, if they share one and its device clips.
DeviceStream* clipping_stream(const std::vector<Tensor>& grads) {
  DeviceStream* stream = grads.empty() ? nullptr : grads.front().stream();
  if (!stream || !stream->clips()) return nullptr;
  return std::all_of(grads.begin(), grads.end(), [&](const Tensor& g) { return g.stream() == stream; }) ? stream
                                                                                                        : nullptr;
}

}  // namespace

GradientClipping gradient_clipping_from(std::string_view name) {
  for (const auto& [text, value] : {std::pair{"norm", GradientClipping::kNorm},
                                    {"value", GradientClipping::kValue},
                                    {"none", GradientClipping::kNone}}) {
    if (name == text) return value;
  }
  fail(Code::kInvalidArgument, "gradients are clipped by \"norm\", \"value\" or \"none\", not by \"", name, "\"");
}

GradientClippingOptimizer::GradientClippingOptimizer(KeyedOptimizerPtr optimizer, Options options)
    : OptimizerWrapper(std::move(optimizer)), options_(options), items_(inner().params()) {
  if (!(options_.norm_type > 0)) {
    fail(Code::kInvalidArgument, "norm_type must be positive or infinite, not ", options_.norm_type);
  }
  if (!(options_.max_gradient >= 0)) {
    fail(Code::kInvalidArgument, "max_gradient must not be negative, and is ", options_.max_gradient);
  }
}

void GradientClippingOptimizer::step() {
  const bool by_norm = options_.clipping == GradientClipping::kNorm;
  last_norm_.reset();
  if (by_norm || options_.clipping == GradientClipping::kValue || options_.track_grad_norm) {
    grads_.clear();
    for (const Item& item : items_) {
      const Tensor& grad = item.parameter->grad;
      if (!grad.defined() || item.parameter->in_backward || grad.numel() == 0) continue;
      if (grad.dtype() != DType::kFloat32) {
        fail(Code::kInvalidArgument, "the gradient of parameter \"", item.key, "\" must be float32 to be clipped, not ",
             to_string(grad.dtype()));
      }
      grads_.push_back(grad);
    }
    if (grads_.empty())
      norm_ = Tensor();
    else if (DeviceStream* stream = clipping_stream(grads_))
      clip_on_device(*stream);
    else
      clip_on_host();
    grads_.clear();
  }
  inner().step();
}

void GradientClippingOptimizer::clip_on_host() {
  const bool by_norm = options_.clipping == GradientClipping::kNorm;
  const std::vector<Side> sides = sides_of(grads_);
  if (by_norm || options_.track_grad_norm) last_norm_ = total_norm(sides, options_.norm_type);
  if (options_.clipping == GradientClipping::kNone) return;
  const float limit = static_cast<float>(options_.max_gradient);
  // A NaN norm gives a NaN factor.
  const float scale = by_norm ? static_cast<float>(std::min(options_.max_gradient / (*last_norm_ + 1e-6), 1.0)) : 1.0f;
  if (by_norm && scale == 1.0f) return;
  for (const Side& side : sides) {
    float* x = side.host.data<float>();
    const int64_t n = side.host.numel();
    for (int64_t i = 0; i < n; ++i) x[i] = by_norm ? x[i] * scale : std::clamp(x[i], -limit, limit);
    if (side.grad.stream()) assign(side.grad, side.host);
  }
}

void GradientClippingOptimizer::clip_on_device(DeviceStream& stream) {
  const bool by_value = options_.clipping == GradientClipping::kValue,
             needs_norm = !by_value || options_.track_grad_norm;
  if (needs_norm && norm_.stream() != &stream) norm_ = stream.empty({TSR_CLIP_DOUBLES}, DType::kFloat64);
  on_device_.clear();
  for (const Tensor& grad : grads_) on_device_.push_back({static_cast<float*>(grad.raw()), grad.numel()});
  tsr_clipping call{};
  call.struct_size = sizeof(call);
  call.device_index = stream.device().index;
  call.mode = by_value                                       ? TSR_CLIP_BY_VALUE
              : options_.clipping == GradientClipping::kNorm ? TSR_CLIP_BY_NORM
                                                             : TSR_CLIP_NONE;
  call.num_gradients = static_cast<uint32_t>(on_device_.size());
  call.gradients = on_device_.data();
  call.max_gradient = options_.max_gradient;
  call.norm_type = options_.norm_type;
  call.norm = needs_norm ? static_cast<double*>(norm_.raw()) : nullptr;
  stream.clip_gradients(call);
}

std::optional<double> GradientClippingOptimizer::last_total_grad_norm() const {
  if (last_norm_ || !norm_.defined()) return last_norm_;
  return in_host_memory(norm_.first({1})).item();
}

}  // namespace tessera
