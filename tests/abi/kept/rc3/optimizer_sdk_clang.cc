// SPDX-License-Identifier: Apache-2.0 OR MIT
// An optimizer that counts the updates of each row exactly: w -= rate / (1 + decay * count) g. The count is two whole
// numbers in float32.
#include "tessera/sdk/optimizer.h"

using namespace tessera::sdk;

class Rates {
 public:
  explicit Rates(Options& options)
      : learning_rate_(options.number("learning_rate", 0.1)), decay_(options.number("decay", 0.01)) {
    if (!(decay_ >= 0)) fail(TSR_INVALID_ARGUMENT, "option \"decay\" is ", decay_, ", but must be 0 or more");
  }
  double learning_rate() const { return learning_rate_; }

 protected:
  void step(const tsr_update& update, double count, int64_t dim, float* weight, const float* grad) const noexcept {
    const auto rate = static_cast<float>(update.learning_rate / (1 + decay_ * count));
    for (int64_t d = 0; d < dim; ++d) weight[d] -= rate * grad[d];
  }

 private:
  double learning_rate_, decay_;
};

class Counted : public Optimizer, public Rates {
 public:
  using Rates::Rates;
  // Whole numbers below 2^20, so that float32 has them exactly; a count has the value high * 2^20 + low.
  std::vector<State> states() const { return {{"count_low", TSR_STATE_PER_ROW}, {"count_high", TSR_STATE_PER_ROW}}; }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* states) const noexcept {
    float &low = *states[0], &high = *states[1];
    step(update, double{high} * kDigit + low, dim, weight, grad);
    low += 1;
    if (low < kDigit) return;
    low = 0;
    high += 1;
  }

 private:
  static constexpr float kDigit = 1 << 20;
};

TESSERA_PLUGIN("kept_counted", "1.0.0",
               component<Counted>({.id = "kept.rc3.counted", .version = "1", .about = "a rate that falls with use"}));
