#include "conformance/parity/warmup_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr std::string_view kWarmupKey = "__warmup";
constexpr std::string_view kWarmupState = "warmup";

constexpr std::array<std::pair<std::string_view, WarmupPolicy>, 8> kPolicies{{
    {"none", WarmupPolicy::kNone},
    {"linear", WarmupPolicy::kLinear},
    {"constant", WarmupPolicy::kConstant},
    {"poly", WarmupPolicy::kPoly},
    {"step", WarmupPolicy::kStep},
    {"inv_sqrt", WarmupPolicy::kInvSqrt},
    {"cosine_annealing_warm_restarts", WarmupPolicy::kCosineAnnealingWarmRestarts},
    {"interpolate", WarmupPolicy::kInterpolate},
}};

void check_stage(const WarmupStage& s) {
  if (s.policy == WarmupPolicy::kInterpolate && (!s.start_interpolating_iters || !s.end_value)) {
    fail(Code::kInvalidArgument, "a warmup stage that interpolates needs start_interpolating_iters and end_value");
  }
  if (s.policy == WarmupPolicy::kCosineAnnealingWarmRestarts && s.sgdr_period < 1) {
    fail(Code::kInvalidArgument, "a warmup stage's sgdr_period must be at least 1, not ", s.sgdr_period);
  }
}

int64_t decay_iters_of(const WarmupStage& s) {
  if (s.decay_iters > 0) return s.decay_iters;
  return s.policy == WarmupPolicy::kStep ? 1 : s.max_iters;
}

double interpolated(const WarmupStage& s, int64_t i) {
  const int64_t start = *s.start_interpolating_iters, length = s.max_iters - start;
  if (length == 0) fail(Code::kInvalidArgument, "a warmup stage cannot start interpolating at its own end");
  return s.value + (*s.end_value - s.value) * static_cast<double>(i - start) / static_cast<double>(length);
}

double multiplier(const WarmupStage& s, int64_t iteration) {
  const double i = static_cast<double>(iteration);
  switch (s.policy) {
    case WarmupPolicy::kNone:
      return 1;
    case WarmupPolicy::kLinear:
      return s.value + (1 - s.value) * i / static_cast<double>(s.max_iters);
    case WarmupPolicy::kConstant:
      return s.value;
    case WarmupPolicy::kPoly:
      return std::pow(1 - i / static_cast<double>(decay_iters_of(s)), s.value);
    case WarmupPolicy::kStep: {
      const int64_t steps = iteration / decay_iters_of(s);
      return std::pow(s.value, static_cast<double>(steps));
    }
    case WarmupPolicy::kInvSqrt:
      if (iteration <= 0)
        fail(Code::kInvalidArgument, "inv_sqrt has no value at iteration 0: begin with another stage");
      return 1 / std::sqrt(i);
    case WarmupPolicy::kCosineAnnealingWarmRestarts: {
      const double phase = static_cast<double>(iteration % s.sgdr_period) / static_cast<double>(s.sgdr_period);
      return s.value + (1 - s.value) * (1 + std::cos(M_PI * phase)) / 2;
    }
    case WarmupPolicy::kInterpolate:
      return interpolated(s, iteration);
  }
  return 1;
}

}  // namespace

WarmupPolicy warmup_policy_from(std::string_view name) {
  std::string known;
  for (const auto& [text, policy] : kPolicies) {
    if (text == name) return policy;
    known += str_cat(known.empty() ? "" : ", ", text);
  }
  fail(Code::kInvalidArgument, "there is no warmup policy \"", name, "\"; there are: ", known);
}

double warmup_multiplier(const WarmupStage& stage, int64_t iteration) {
  check_stage(stage);
  return multiplier(stage, iteration) * stage.lr_scale;
}

std::vector<WarmupStage> warmup_stages(std::vector<WarmupStage> stages) {
  int64_t before = 0;
  for (WarmupStage& s : stages) {
    check_stage(s);
    if (s.max_iters <= before) {
      fail(Code::kInvalidArgument,
           "a warmup stage's max_iters must be greater than that of the stage before: ", s.max_iters, " follows ",
           before);
    }
    before = s.max_iters;
    s.decay_iters = decay_iters_of(s);
  }
  WarmupStage last{.policy = WarmupPolicy::kNone, .max_iters = std::numeric_limits<int64_t>::max()};
  stages.push_back(last);
  return stages;
}

WarmupOptimizer::WarmupOptimizer(KeyedOptimizerPtr optimizer, Options options)
    : OptimizerWrapper(std::move(optimizer)),
      stages_(warmup_stages(std::move(options.stages))),
      lr_(options.lr),
      lr_param_(std::move(options.lr_param)),
      warmup_(Tensor::from<int64_t>({0, 0})),
      parameter_(std::make_shared<Parameter>()) {
  parameter_->name = kWarmupKey;
  parameter_->value = Tensor::zeros({1});
  set_rate();
}

void WarmupOptimizer::set_rate() {
  const int64_t* at = warmup_.data<int64_t>();
  const double rate = lr_ * warmup_multiplier(stages_[static_cast<size_t>(at[1])], at[0]);
  for (size_t g = 0; g < num_groups(); ++g) set_option(g, lr_param_, rate);
}

void WarmupOptimizer::step() {
  inner().step();
  int64_t* at = warmup_.data<int64_t>();
  ++at[0];
  if (at[0] > stages_[static_cast<size_t>(at[1])].max_iters) ++at[1];
  set_rate();
}

std::vector<KeyedOptimizer::Item> WarmupOptimizer::params() const {
  std::vector<Item> out = inner().params();
  out.push_back({std::string(kWarmupKey), parameter_});
  return out;
}

std::vector<std::pair<std::string, OptimizerState>> WarmupOptimizer::state() const {
  auto out = inner().state();
  out.emplace_back(kWarmupKey, OptimizerState{{std::string(kWarmupState), warmup_}});
  return out;
}

void WarmupOptimizer::set_state(std::string_view key, const OptimizerState& state) {
  if (key != kWarmupKey) return inner().set_state(key, state);
  if (state.size() != 1 || state[0].first != kWarmupState || state[0].second.dtype() != DType::kInt64 ||
      state[0].second.numel() != 2) {
    fail(Code::kInvalidArgument, "state \"__warmup\" must be {\"warmup\": int64 [iteration, stage]}");
  }
  const int64_t* at = state[0].second.data<int64_t>();
  if (at[0] < 0 || at[1] < 0 || at[1] >= static_cast<int64_t>(stages_.size())) {
    fail(Code::kInvalidArgument, "the saved warmup is at iteration ", at[0], " of stage ", at[1], ", but there are ",
         stages_.size(), " stages");
  }
  std::copy_n(at, 2, warmup_.data<int64_t>());
}

void WarmupOptimizer::after_load() {
  OptimizerWrapper::after_load();
  set_rate();
}

}  // namespace tessera
