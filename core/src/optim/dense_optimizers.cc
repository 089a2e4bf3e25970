// SGD, Adagrad, RowWiseAdagrad, Adam, AdamW and RMSprop for float32 parameters: their options, states, and the factors
// of a step. The loops are in parameter_updates.cc, or on the device.
#include <algorithm>
#include <cmath>
#include <utility>

#include "optim/dense_optimizer.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

using optim::DenseOptimizer;
using optim::floats;
using optim::require_not_negative;
using optim::settings_of;
using optim::zero_or;

class Sgd : public DenseOptimizer {
 public:
  Sgd(const SgdOptions& options, ParameterList parameters) : DenseOptimizer(std::move(parameters)), o_(options) {
    check_options();
  }

 protected:
  tsr_parameter_updates settings() const override {
    auto out = settings_of(o_.momentum == 0 ? TSR_UPDATE_SGD : TSR_UPDATE_MOMENTUM, o_.maximize, o_.weight_decay);
    const auto lr = static_cast<float>(o_.lr), momentum = static_cast<float>(o_.momentum);
    out.constants[0] = momentum;
    out.constants[1] = o_.nesterov ? lr : 0.0f;
    out.constants[2] = o_.nesterov ? lr * momentum : lr;
    return out;
  }
  void prepare(size_t i, OptimizerState& state, tsr_parameter_update& update) override {
    if (o_.momentum == 0) {
      update.factors[0] = static_cast<float>(o_.lr);
      return;
    }
    const bool first = state.empty();
    if (first) state = fresh_state(*parameters()[i]);
    update.factors[0] = first ? 1.0f : static_cast<float>(1 - o_.dampening);
    update.states[0] = floats(state[0].second);
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    if (o_.momentum == 0) return {};
    return {{"momentum_buffer", zeros_like(p.value)}};
  }
  Options options() const override {
    return {{"dampening", zero_or(o_.dampening)},
            {"differentiable", false},
            {"foreach", std::monostate()},
            {"fused", std::monostate()},
            {"lr", o_.lr},
            {"maximize", o_.maximize},
            {"momentum", zero_or(o_.momentum)},
            {"nesterov", o_.nesterov},
            {"weight_decay", zero_or(o_.weight_decay)}};
  }
  double* number(std::string_view option) override {
    if (option == "lr") return &o_.lr;
    if (option == "momentum") return &o_.momentum;
    if (option == "dampening") return &o_.dampening;
    return option == "weight_decay" ? &o_.weight_decay : nullptr;
  }
  void check_options() const override {
    require_not_negative(o_.lr, "lr");
    require_not_negative(o_.momentum, "momentum");
    require_not_negative(o_.weight_decay, "weight_decay");
    if (o_.nesterov && (o_.momentum == 0 || o_.dampening != 0)) {
      fail(Code::kInvalidArgument, "nesterov needs momentum and no dampening");
    }
  }

 private:
  SgdOptions o_;
};

// Adagrad with a sum for each element or for each row.
class Adagrad : public DenseOptimizer {
 public:
  Adagrad(const AdagradOptions& options, ParameterList list, bool per_row)
      : DenseOptimizer(std::move(list)), o_(options), per_row_(per_row) {
    check_options();
    for (size_t i = 0; i < parameters().size(); ++i) {
      if (!parameters()[i]->in_backward) state_of(i) = Adagrad::fresh_state(*parameters()[i]);
    }
  }

 protected:
  tsr_parameter_updates settings() const override {
    auto out = settings_of(per_row_ ? TSR_UPDATE_ROWWISE_ADAGRAD : TSR_UPDATE_ADAGRAD, o_.maximize, o_.weight_decay);
    out.constants[0] = static_cast<float>(o_.eps);
    return out;
  }
  void prepare(size_t, OptimizerState& state, tsr_parameter_update& update) override {
    float& step = *state[0].second.data<float>();
    update.factors[0] = static_cast<float>(o_.lr / (1 + static_cast<double>(step) * o_.lr_decay));
    step += 1;
    update.states[0] = floats(state[1].second);
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    Tensor sum = Tensor::empty(per_row_ ? Shape{rows_of(p), 1} : p.value.shape());
    sum.fill(o_.initial_accumulator_value);
    if (DeviceStream* stream = p.value.stream()) sum = stream->to_device(sum);
    return {{"step", Tensor::scalar(0.0f)}, {"sum", sum}};
  }
  bool made_by_first_step() const override { return false; }
  Options options() const override {
    Options out{{"eps", o_.eps},
                {"initial_accumulator_value", zero_or(o_.initial_accumulator_value)},
                {"lr", o_.lr},
                {"lr_decay", zero_or(o_.lr_decay)},
                {"maximize", o_.maximize},
                {"weight_decay", zero_or(o_.weight_decay)}};
    if (per_row_) return out;
    out.emplace_back("differentiable", false);
    out.emplace_back("foreach", std::monostate());
    out.emplace_back("fused", std::monostate());
    return out;
  }
  double* number(std::string_view option) override {
    if (option == "lr") return &o_.lr;
    if (option == "lr_decay") return &o_.lr_decay;
    if (option == "weight_decay") return &o_.weight_decay;
    if (option == "initial_accumulator_value") return &o_.initial_accumulator_value;
    return option == "eps" ? &o_.eps : nullptr;
  }
  void check_options() const override {
    require_not_negative(o_.lr, "lr");
    require_not_negative(o_.lr_decay, "lr_decay");
    require_not_negative(o_.weight_decay, "weight_decay");
    require_not_negative(o_.initial_accumulator_value, "initial_accumulator_value");
    require_not_negative(o_.eps, "eps");
  }

 private:
  AdagradOptions o_;
  bool per_row_;
};

class Adam : public DenseOptimizer {
 public:
  Adam(const AdamOptions& options, ParameterList parameters) : DenseOptimizer(std::move(parameters)), o_(options) {
    check_options();
  }

 protected:
  tsr_parameter_updates settings() const override {
    auto out = settings_of(TSR_UPDATE_ADAM, o_.maximize, o_.decoupled_weight_decay ? 0 : o_.weight_decay);
    out.constants[0] = static_cast<float>(o_.beta1);
    out.constants[1] = static_cast<float>(o_.beta2);
    out.constants[2] = static_cast<float>(o_.eps);
    out.constants[3] = static_cast<float>(1 - o_.beta2);
    return out;
  }
  void prepare(size_t i, OptimizerState& state, tsr_parameter_update& update) override {
    if (state.empty()) state = fresh_state(*parameters()[i]);
    float& step = *state[0].second.data<float>();
    step += 1;
    const auto s = static_cast<double>(step);
    update.factors[0] = static_cast<float>(o_.lr / (1 - std::pow(o_.beta1, s)));
    update.factors[1] = static_cast<float>(1 / std::sqrt(1 - std::pow(o_.beta2, s)));
    update.states[0] = floats(state[1].second);
    update.states[1] = floats(state[2].second);
  }
  double decay_first() const override { return o_.decoupled_weight_decay ? o_.lr * o_.weight_decay : 0; }
  OptimizerState fresh_state(const Parameter& p) const override {
    return {{"step", Tensor::scalar(0.0f)}, {"exp_avg", zeros_like(p.value)}, {"exp_avg_sq", zeros_like(p.value)}};
  }
  Options options() const override {
    return {{"amsgrad", false},
            {"betas", std::pair(o_.beta1, o_.beta2)},
            {"capturable", false},
            {"decoupled_weight_decay", o_.decoupled_weight_decay},
            {"differentiable", false},
            {"eps", o_.eps},
            {"foreach", std::monostate()},
            {"fused", std::monostate()},
            {"lr", o_.lr},
            {"maximize", o_.maximize},
            {"weight_decay", zero_or(o_.weight_decay)}};
  }
  double* number(std::string_view option) override {
    if (option == "lr") return &o_.lr;
    if (option == "eps") return &o_.eps;
    if (option == "beta1") return &o_.beta1;
    if (option == "beta2") return &o_.beta2;
    return option == "weight_decay" ? &o_.weight_decay : nullptr;
  }
  void check_options() const override {
    require_not_negative(o_.lr, "lr");
    require_not_negative(o_.eps, "eps");
    require_not_negative(o_.weight_decay, "weight_decay");
    for (double beta : {o_.beta1, o_.beta2}) {
      if (!(beta >= 0 && beta < 1)) fail(Code::kInvalidArgument, "betas must be in [0, 1), and one is ", beta);
    }
  }

 private:
  AdamOptions o_;
};

// Adam's formula whose first moment is the gradient, and whose averages are not corrected.
class Rmsprop : public DenseOptimizer {
 public:
  Rmsprop(const RmspropOptions& options, ParameterList list) : DenseOptimizer(std::move(list)), o_(options) {
    check_options();
    for (const ParameterPtr& p : parameters()) gradients_.push_back(p->in_backward ? Tensor() : zeros_like(p->value));
  }

 protected:
  tsr_parameter_updates settings() const override {
    auto out = settings_of(TSR_UPDATE_ADAM, o_.maximize, o_.weight_decay);
    out.constants[1] = static_cast<float>(o_.alpha);
    out.constants[2] = static_cast<float>(o_.eps);
    out.constants[3] = static_cast<float>(1 - o_.alpha);
    return out;
  }
  void prepare(size_t i, OptimizerState& state, tsr_parameter_update& update) override {
    if (state.empty()) state = fresh_state(*parameters()[i]);
    *state[0].second.data<float>() += 1;
    update.factors[0] = static_cast<float>(o_.lr);
    update.factors[1] = 1;
    update.states[0] = floats(gradients_[i]);
    update.states[1] = floats(state[1].second);
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    return {{"step", Tensor::scalar(0.0f)}, {"square_avg", zeros_like(p.value)}};
  }
  Options options() const override {
    return {{"alpha", o_.alpha},
            {"capturable", false},
            {"centered", false},
            {"differentiable", false},
            {"eps", o_.eps},
            {"foreach", std::monostate()},
            {"lr", o_.lr},
            {"maximize", o_.maximize},
            {"momentum", int64_t{0}},
            {"weight_decay", zero_or(o_.weight_decay)}};
  }
  double* number(std::string_view option) override {
    if (option == "lr") return &o_.lr;
    if (option == "eps") return &o_.eps;
    if (option == "alpha") return &o_.alpha;
    return option == "weight_decay" ? &o_.weight_decay : nullptr;
  }
  void check_options() const override {
    require_not_negative(o_.lr, "lr");
    require_not_negative(o_.eps, "eps");
    require_not_negative(o_.weight_decay, "weight_decay");
    if (!(o_.alpha >= 0 && o_.alpha < 1)) fail(Code::kInvalidArgument, "alpha must be in [0, 1), and is ", o_.alpha);
  }

 private:
  RmspropOptions o_;
  std::vector<Tensor> gradients_;  // effective ones, of each parameter; no state, because each step writes them anew
};

}  // namespace

KeyedOptimizerPtr make_sgd(const SgdOptions& options, ParameterList parameters) {
  return std::make_shared<Sgd>(options, std::move(parameters));
}
KeyedOptimizerPtr make_adagrad(const AdagradOptions& options, ParameterList parameters) {
  return std::make_shared<Adagrad>(options, std::move(parameters), false);
}
KeyedOptimizerPtr make_rowwise_adagrad(const AdagradOptions& options, ParameterList parameters) {
  return std::make_shared<Adagrad>(options, std::move(parameters), true);
}
KeyedOptimizerPtr make_adam(const AdamOptions& options, ParameterList parameters) {
  return std::make_shared<Adam>(options, std::move(parameters));
}
KeyedOptimizerPtr make_rmsprop(const RmspropOptions& options, ParameterList parameters) {
  return std::make_shared<Rmsprop>(options, std::move(parameters));
}

}  // namespace tessera
