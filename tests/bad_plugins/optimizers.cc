// SGD with momentum, or plain under the name of a known formula.
#include "tessera/sdk/optimizer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "faults.h"

namespace {

using namespace tessera::sdk;
using bad::has;

class BadPlugins : public Optimizer {
 public:
  explicit BadPlugins(Options& options) : learning_rate_(options.number("learning_rate", 0.01)) {
    if (has("forgets_the_learning_rate")) learning_rate_ = 0.01;
  }
  double learning_rate() const { return learning_rate_; }
  std::vector<State> states() const {
    if (has("changes_its_states") && asked_++ >= 2) return {};
    return {{"momentum1", TSR_STATE_PER_ELEMENT}};
  }

  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* states) const noexcept {
    const auto now = static_cast<float>(update.learning_rate);
    const float rate = has("uses_the_rate_before") && rate_ > 0 ? rate_.load() : now;
    rate_ = now;
    steps_ += 1;
    if (has("leaves_a_thread_in_use") && steps_ == 1) std::thread([] { pause(); }).detach();
    if (has("counts_its_own_steps")) weight[0] -= 0.01f * static_cast<float>(steps_);
    for (int64_t d = 0; d < dim + (has("writes_too_far") ? 1 : 0); ++d) {
      states[0][d] = 0.9f * states[0][d] + grad[d];
      if (has("shares_state")) states[0][d] = last_ = 0.9f * last_ + grad[d];
      weight[d] -= rate * states[0][d];
    }
    const char* const on = std::getenv("RANK");
    if (has("knows_its_rank") && on != nullptr && *on == '1') weight[0] = std::nanf("");
    if (!has("divides_by_zero")) return;
    float norm = 0;
    for (int64_t d = 0; d < dim; ++d) norm += grad[d] * grad[d];
    for (int64_t d = 0; d < dim; ++d) weight[d] -= rate * grad[d] / std::sqrt(norm);
  }

  void update_rows(const tsr_update& update, int64_t dim, int64_t count, float* const* weights,
                   const float* const* grads, float* const* states) const noexcept {
    for (int64_t i = 0; i < count - (has("skips_the_last_row") && count > 1 ? 1 : 0); ++i)
      update_row(update, dim, weights[i], grads[i], states + i);
  }

 private:
  double learning_rate_;
  mutable float last_ = 0;
  mutable std::atomic<float> rate_{0};
  mutable std::atomic<int> steps_{0};
  mutable std::atomic<int> asked_{0};
};

class Sgd : public Optimizer {
 public:
  explicit Sgd(Options& options) : learning_rate_(options.number("learning_rate", 0.01)) {}
  double learning_rate() const { return learning_rate_; }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const*) const noexcept {
    const auto rate = static_cast<float>(has("ignores_the_schedule") ? learning_rate_ : update.learning_rate);
    const int64_t last = has("stops_at_column_256") ? std::min<int64_t>(dim, 256) : dim;
    for (int64_t d = 0; d < last; ++d) weight[d] -= rate * grad[d];
  }

 private:
  double learning_rate_;
};

}  // namespace

TESSERA_PLUGIN(
    "bad-optimizers", "1.0.0",
    component<BadPlugins>(
        {.id = "bad.momentum", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"}),
    component<Sgd>({.id = "exact_sgd", .version = "1.0.0", .about = "has the fault that BAD_PLUGINS_FAULT names"}));
