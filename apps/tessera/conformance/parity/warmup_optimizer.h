// TorchRec's warm-up of learning rates, as a wrapper of an optimizer. Jobs have LearningRateSchedule (schedule.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/optim.h"

namespace tessera {

enum class WarmupPolicy {
  kNone,
  kLinear,
  kConstant,
  kPoly,
  kStep,
  kInvSqrt,
  kCosineAnnealingWarmRestarts,
  kInterpolate
};
WarmupPolicy warmup_policy_from(std::string_view name);  // "linear", "inv_sqrt", ...; kInvalidArgument lists them

struct WarmupStage {
  WarmupPolicy policy = WarmupPolicy::kLinear;
  int64_t max_iters = 1;  // the stage ends after this iteration, counted from the start of training
  double value = 1;
  double lr_scale = 1;
  int64_t decay_iters = -1;  // <= 0: max_iters; 1 for kStep
  int64_t sgdr_period = 1;
  std::optional<int64_t> start_interpolating_iters;
  std::optional<double> end_value;
};
// The factor of the rate at iteration i, counted from the start of training, including lr_scale. kInvalidArgument: the
// formula has no value.
double warmup_multiplier(const WarmupStage& stage, int64_t iteration);
// Checks that max_iters ascend, sets decay_iters, and appends the final kNone stage.
std::vector<WarmupStage> warmup_stages(std::vector<WarmupStage> stages);

// Sets the wrapped optimizer's rate before each step. Its state is "__warmup": {"warmup": int64 [iteration, stage]}.
class WarmupOptimizer : public OptimizerWrapper {
 public:
  struct Options {
    std::vector<WarmupStage> stages;
    double lr = 0.1;
    std::string lr_param = "lr";
  };
  WarmupOptimizer(KeyedOptimizerPtr optimizer, Options options);
  void step() override;
  std::vector<Item> params() const override;
  std::vector<std::pair<std::string, OptimizerState>> state() const override;
  void set_state(std::string_view key, const OptimizerState& state) override;
  std::string class_name() const override { return "WarmupOptimizer"; }

 protected:
  void after_load() override;

 private:
  void set_rate();

  std::vector<WarmupStage> stages_;
  double lr_;
  std::string lr_param_;
  Tensor warmup_;  // int64 [iteration, stage]
  ParameterPtr parameter_;
};

}  // namespace tessera
