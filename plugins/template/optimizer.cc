// SPDX-License-Identifier: Apache-2.0 OR MIT
// acme.momentum: SGD with momentum, m = momentum m + g, w -= learning rate m.
#include <tessera/sdk/optimizer.h>

using namespace tessera::sdk;

class Momentum : public Optimizer {
 public:
  explicit Momentum(Options& options)
      : learning_rate_(options.number("learning_rate", 0.01)),
        momentum_(static_cast<float>(options.number("momentum", 0.9))) {
    if (!(momentum_ >= 0 && momentum_ < 1)) fail(TSR_INVALID_ARGUMENT, "option \"momentum\" must be in [0, 1)");
  }
  double learning_rate() const { return learning_rate_; }

  // The state of each row: one float per element, 0 at the start.
  std::vector<State> states() const { return {{"momentum1", TSR_STATE_PER_ELEMENT}}; }

  // `update` has the rate and number of this step. Called for several rows at once, from several threads.
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* states) const noexcept {
    const auto rate = static_cast<float>(update.learning_rate);
    float* m = states[0];
    for (int64_t d = 0; d < dim; ++d) {
      m[d] = momentum_ * m[d] + grad[d];
      weight[d] -= rate * m[d];
    }
  }

 private:
  double learning_rate_;
  float momentum_;
};

TESSERA_PLUGIN("acme-momentum", "1.0.0",
               component<Momentum>({.id = "acme.momentum", .version = "1.0.0", .about = "SGD with momentum"}));
