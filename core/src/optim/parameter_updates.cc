#include "optim/parameter_updates.h"

#include <algorithm>
#include <cmath>

namespace tessera::optim {
namespace {

// The effective gradient: sign * g + decay * w.
struct Effective {
  float sign;
  float decay;
  float operator()(float g, float w) const { return sign * g + decay * w; }
};

void sgd_loop(int64_t n, float* __restrict w, const float* __restrict g, float lr, Effective e) {
  for (int64_t i = 0; i < n; ++i) w[i] -= lr * e(g[i], w[i]);
}

// lr_grad and lr_buffer are the factors of gradient and momentum in the step.
void sgd_momentum_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict buffer,
                       float momentum, float share, float lr_grad, float lr_buffer, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    buffer[i] = momentum * buffer[i] + share * gradient;
    w[i] -= lr_grad * gradient + lr_buffer * buffer[i];
  }
}

void adagrad_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict sum, float rate,
                  float eps, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    sum[i] += gradient * gradient;
    w[i] -= rate * gradient / (std::sqrt(sum[i]) + eps);
  }
}

// The sum of squares in eight lanes, because compilers do not reorder sums.
float square_sum(int64_t n, const float* __restrict w, const float* __restrict g, Effective e) {
  constexpr int64_t kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const float gradient = e(g[i + k], w[i + k]);
      lanes[k] += gradient * gradient;
    }
  }
  for (; i < n; ++i) lanes[i % kLanes] += e(g[i], w[i]) * e(g[i], w[i]);
  float total = 0;
  for (float lane : lanes) total += lane;
  return total;
}

void rowwise_adagrad(const tsr_parameter_update& p, float eps, Effective e) {
  float* w = p.value;
  const float* g = p.gradient;
  float* sum = p.states[0];
  for (int64_t r = 0; r < p.rows; ++r, w += p.columns, g += p.columns) {
    sum[r] += square_sum(p.columns, w, g, e) / static_cast<float>(std::max<int64_t>(p.columns, 1));
    sgd_loop(p.columns, w, g, p.factors[0] / (std::sqrt(sum[r]) + eps), e);
  }
}

struct AdamStep {
  float beta1, beta2;
  float rest2;       // 1 - beta2, rounded once
  float step_size;   // lr / (1 - beta1^s)
  float root_scale;  // 1 / sqrt(1 - beta2^s)
  float eps;
};

void adam_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict m, float* __restrict v,
               AdamStep s, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    m[i] = s.beta1 * m[i] + (1 - s.beta1) * gradient;
    v[i] = s.beta2 * v[i] + s.rest2 * gradient * gradient;
    w[i] -= s.step_size * m[i] / (std::sqrt(v[i]) * s.root_scale + s.eps);
  }
}

void update(const tsr_parameter_updates& u, const tsr_parameter_update& p) {
  const Effective e{u.sign, u.decay};
  const int64_t n = p.rows * p.columns;
  const float *c = u.constants, *f = p.factors;
  switch (u.formula) {
    case TSR_UPDATE_SGD:
      return sgd_loop(n, p.value, p.gradient, f[0], e);
    case TSR_UPDATE_MOMENTUM:
      return sgd_momentum_loop(n, p.value, p.gradient, p.states[0], c[0], f[0], c[1], c[2], e);
    case TSR_UPDATE_ADAGRAD:
      return adagrad_loop(n, p.value, p.gradient, p.states[0], f[0], c[0], e);
    case TSR_UPDATE_ROWWISE_ADAGRAD:
      return rowwise_adagrad(p, c[0], e);
    default:
      TESSERA_CHECK(u.formula == TSR_UPDATE_ADAM, "formula ", u.formula);
      return adam_loop(n, p.value, p.gradient, p.states[0], p.states[1], {c[0], c[1], c[3], f[0], f[1], c[2]}, e);
  }
}

}  // namespace

void update_in_host_memory(const tsr_parameter_updates& updates) {
  for (uint32_t i = 0; i < updates.num_parameters; ++i) update(updates, updates.parameters[i]);
}

void ParameterUpdates::begin() {
  for (Place& place : places_) place.parameters.clear();
}

void ParameterUpdates::add(DeviceStream* stream, const tsr_parameter_update& parameter) {
  auto place = std::find_if(places_.begin(), places_.end(), [&](const Place& p) { return p.stream == stream; });
  if (place == places_.end()) place = places_.insert(places_.end(), Place{stream, {}});
  place->parameters.push_back(parameter);
}

void ParameterUpdates::run(tsr_parameter_updates settings) {
  settings.struct_size = sizeof(settings);
  for (const Place& place : places_) {
    if (place.parameters.empty()) continue;
    settings.device_index = place.stream ? place.stream->device().index : 0;
    settings.num_parameters = static_cast<uint32_t>(place.parameters.size());
    settings.parameters = place.parameters.data();
    if (place.stream)
      place.stream->update_parameters(settings);
    else
      update_in_host_memory(settings);
  }
}

}  // namespace tessera::optim
