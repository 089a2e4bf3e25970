// FTRL-proximal, per coordinate: l1 makes weights sparse, and each element has a step size of its own.
//
// H. B. McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013, algorithm 1, in the form of
// TensorFlow's ApplyFtrl (tf.keras.optimizers.Ftrl), whose options these are. With p = -learning_rate_power:
//
//   n'     = n + g^2
//   z      = z + g - (n'^p - n^p) / learning_rate * w
//   w      = 0                                                                            where |z| <= l1
//            (sign(z) l1 - z) / (n'^p / learning_rate + 2 l2 + beta / learning_rate)      elsewhere
//   n      = n'
//
// `accumulator` (n) starts at initial_accumulator_value, `linear` (z) at 0.
#pragma once

#include <tessera/sdk/optimizer.h>

#include <cmath>

namespace extras {

using namespace tessera::sdk;

class Ftrl : public Optimizer {
 public:
  explicit Ftrl(Options& options)
      : learning_rate_(at_least(options, "learning_rate", 0.001, 0)),
        power_(-options.number("learning_rate_power", -0.5)),
        start_(at_least(options, "initial_accumulator_value", 0.1, 0)),
        l1_(static_cast<float>(at_least(options, "l1", 0, 0))),
        l2_(at_least(options, "l2", 0, 0)),
        beta_(at_least(options, "beta", 0, 0)) {
    if (!(power_ >= 0 && std::isfinite(power_)))
      fail(TSR_INVALID_ARGUMENT, "option \"learning_rate_power\" is ", -power_, " but must be 0 or negative");
  }
  double learning_rate() const { return learning_rate_; }

  std::vector<State> states() const {
    return {{"accumulator", TSR_STATE_PER_ELEMENT, start_}, {"linear", TSR_STATE_PER_ELEMENT}};
  }

  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* states) const noexcept {
    if (update.learning_rate <= 0) return;  // weights do not change, and nothing is divided by 0
    const Terms terms(*this, update.learning_rate);
    if (power_ == 0.5)
      row(terms, dim, {weight, grad, states[0], states[1]}, [](float n) { return std::sqrt(n); });
    else
      row(terms, dim, {weight, grad, states[0], states[1]},
          [p = static_cast<float>(power_)](float n) { return std::pow(n, p); });
  }

 private:
  struct Terms {
    Terms(const Ftrl& f, double learning_rate)
        : inverse_rate(static_cast<float>(1 / learning_rate)),
          l1(f.l1_),
          ridge(static_cast<float>(2 * f.l2_ + f.beta_ / learning_rate)) {}
    float inverse_rate, l1, ridge;
  };
  struct Row {
    float* weight;
    const float* grad;
    float *accumulator, *linear;
  };

  template <class Power>
  static void row(const Terms& t, int64_t dim, const Row& r, const Power& power) {
    for (int64_t d = 0; d < dim; ++d) {
      const float n = r.accumulator[d], next = n + r.grad[d] * r.grad[d];
      const float root = power(next);
      const float z = r.linear[d] + r.grad[d] - (root - power(n)) * t.inverse_rate * r.weight[d];
      const float curvature = root * t.inverse_rate + t.ridge;
      // Before its first gradient, a coordinate has no curvature and stays at 0.
      r.weight[d] = std::abs(z) <= t.l1 || curvature <= 0 ? 0 : (std::copysign(t.l1, z) - z) / curvature;
      r.accumulator[d] = next;
      r.linear[d] = z;
    }
  }

  static double at_least(Options& options, const char* key, double otherwise, double least) {
    const double value = options.number(key, otherwise);
    if (!(value >= least && std::isfinite(value)))
      fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is ", value, " but must be at least ", least, " and finite");
    return value;
  }

  double learning_rate_, power_, start_;
  float l1_;
  double l2_, beta_;
};

}  // namespace extras
