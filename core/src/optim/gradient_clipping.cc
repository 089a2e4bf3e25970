#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/device.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

// Sums in double, in eight lanes: compilers do not reorder sums by themselves.
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

double largest(const float* x, int64_t n) {
  float out = 0;
  for (int64_t i = 0; i < n; ++i) out = std::max(out, std::abs(x[i]));
  return out;
}

// A gradient, and where the host reads and writes it: a norm is needed before anything can be scaled, so gradients on a
// device come to the host and go back.
struct Side {
  const Tensor& grad;
  Tensor host;
};

std::vector<Side> sides_of(const std::vector<KeyedOptimizer::Item>& items) {
  std::vector<Side> out;
  for (const KeyedOptimizer::Item& item : items) {
    const Tensor& grad = item.parameter->grad;
    if (grad.defined() && !item.parameter->in_backward) out.push_back({grad, in_host_memory(grad)});
  }
  return out;
}

double total_norm(const std::vector<Side>& sides, double p) {
  double total = 0;
  for (const Side& side : sides) {
    const float* x = side.host.data<float>();
    const int64_t n = side.host.numel();
    if (std::isinf(p)) {
      total = std::max(total, largest(x, n));
    } else if (p == 2) {
      total += sum_of(x, n, [](float v) { return static_cast<double>(v) * v; });
    } else {
      total += sum_of(x, n, [p](float v) { return std::pow(std::abs(static_cast<double>(v)), p); });
    }
  }
  if (std::isinf(p)) return total;
  return p == 2 ? std::sqrt(total) : std::pow(total, 1 / p);
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
  const bool by_norm = options_.clipping == GradientClipping::kNorm,
             by_value = options_.clipping == GradientClipping::kValue;
  const bool needs_norm = by_norm || options_.track_grad_norm;
  const std::vector<Side> sides = needs_norm || by_value ? sides_of(items_) : std::vector<Side>();
  if (needs_norm) last_norm_ = total_norm(sides, options_.norm_type);
  const float limit = static_cast<float>(options_.max_gradient);
  const float scale = by_norm ? static_cast<float>(std::min(1.0, options_.max_gradient / (*last_norm_ + 1e-6))) : 1.0f;
  for (const Side& side : sides) {
    float* x = side.host.data<float>();
    const int64_t n = side.host.numel();
    if (by_norm && scale != 1.0f) {
      for (int64_t i = 0; i < n; ++i) x[i] *= scale;
    } else if (by_value) {
      for (int64_t i = 0; i < n; ++i) x[i] = std::clamp(x[i], -limit, limit);
    } else {
      continue;
    }
    if (side.grad.stream()) assign(side.grad, side.host);
  }
  inner().step();
}

}  // namespace tessera
