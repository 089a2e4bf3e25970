// SGD, Adagrad, RowWiseAdagrad, Adam, AdamW and RMSprop for float32 parameters: their options, states, and the factors
// of a step. The loops are in parameter_updates.cc, or on the device.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "optim/parameter_updates.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

// Has parameters, their states and one group of options. Subclasses add a formula.
class DenseOptimizer : public KeyedOptimizer {
 public:
  explicit DenseOptimizer(ParameterList parameters) : parameters_(std::move(parameters)) {
    std::set<std::string> seen;
    for (const ParameterPtr& p : parameters_) {
      if (!seen.insert(p->name).second) fail(Code::kInvalidArgument, "two parameters have the name \"", p->name, "\"");
      if (p->in_backward) continue;
      if (p->value.dtype() != DType::kFloat32 || !p->value.defined() || !is_trained_in_place(p->value)) {
        fail(Code::kInvalidArgument, "parameter \"", p->name,
             "\" must be float32, in host memory or on a device that trains, for this optimizer");
      }
    }
    states_.resize(parameters_.size());
  }

  void step() override {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = *parameters_[i];
      if (!p.grad.defined() || p.in_backward) continue;
      if (p.grad.dtype() != DType::kFloat32 || p.grad.shape() != p.value.shape()) {
        fail(Code::kInvalidArgument, "the gradient of parameter \"", p.name,
             "\" must be float32 of the parameter's shape; sparse gradients must be made dense first");
      }
      TESSERA_CHECK(p.grad.stream() == p.value.stream(), "the gradient of ", p.name, " is beside its value");
    }
    if (const double decay = decay_first(); decay != 0) {
      tsr_parameter_updates shrink{};  // value -= decay * value
      shrink.formula = TSR_UPDATE_SGD;
      shrink.decay = static_cast<float>(decay);
      update_all(shrink, [](size_t, tsr_parameter_update& update) { update.factors[0] = 1; });
    }
    update_all(settings(), [&](size_t i, tsr_parameter_update& update) { prepare(i, states_[i], update); });
  }

  std::vector<Item> params() const override {
    std::vector<Item> out;
    for (const ParameterPtr& p : parameters_) out.push_back({p->name, p});
    return out;
  }

  std::vector<std::pair<std::string, OptimizerState>> state() const override {
    std::vector<std::pair<std::string, OptimizerState>> out;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (states_[i].empty()) continue;
      out.emplace_back(parameters_[i]->name, states_[i]);
      for (auto& [name, value] : out.back().second) value = in_host_memory(value);
    }
    return out;
  }

  void set_state(std::string_view key, const OptimizerState& given) override {
    size_t i = 0;
    while (i < parameters_.size() && parameters_[i]->name != key) ++i;
    if (i == parameters_.size()) {
      fail(Code::kInvalidArgument, "there is state for \"", key, "\", which is not a parameter of this optimizer");
    }
    if (given.empty() && made_by_first_step()) return states_[i].clear();
    OptimizerState into =
        states_[i].empty() && !parameters_[i]->in_backward ? fresh_state(*parameters_[i]) : states_[i];
    for (const bool write : {false, true}) {  // check everything before anything changes
      if (given.size() != into.size()) {
        fail(Code::kInvalidArgument, "parameter \"", key, "\" has ", into.size(), " states, but ", given.size(),
             " were given");
      }
      for (auto& [name, have] : into) {
        const auto same =
            std::find_if(given.begin(), given.end(), [&name = name](const auto& e) { return e.first == name; });
        if (same == given.end() || same->second.dtype() != DType::kFloat32 || same->second.shape() != have.shape()) {
          fail(Code::kInvalidArgument, "parameter \"", key, "\" needs a state \"", name,
               "\" of its own shape, float32");
        }
        if (write) assign(have, same->second);
      }
    }
    states_[i] = std::move(into);
  }

  std::vector<ParamGroup> param_groups() const override {
    ParamGroup group;
    for (const ParameterPtr& p : parameters_) group.params.push_back(p->name);
    group.options = options();
    std::sort(group.options.begin(), group.options.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    return {group};
  }
  size_t num_groups() const override { return 1; }

  void set_option(size_t group, std::string_view option, double value) override {
    TESSERA_CHECK(group == 0, "there is one group");
    double* at = number(option);
    if (at == nullptr) fail(Code::kInvalidArgument, "this optimizer has no number \"", option, "\" to set");
    const double before = *at;
    *at = value;
    try {
      check_options();
    } catch (...) {
      *at = before;
      throw;
    }
  }

  std::string class_name() const override { return "KeyedOptimizerWrapper"; }

 protected:
  using Options = std::vector<std::pair<std::string, OptionValue>>;
  // settings() has the step's constants, which all parameters share. prepare() fills one parameter's states and factors
  // for the step that begins, and counts the step.
  virtual tsr_parameter_updates settings() const = 0;
  virtual void prepare(size_t i, OptimizerState& state, tsr_parameter_update& update) = 0;
  // The state before any step. made_by_first_step() is true if a parameter gets it with its first step, and false if it
  // has it from the beginning.
  virtual OptimizerState fresh_state(const Parameter& p) const = 0;
  // The part of itself that each value loses before the step; 0: nothing.
  virtual double decay_first() const { return 0; }
  virtual bool made_by_first_step() const { return true; }
  virtual Options options() const = 0;
  virtual double* number(std::string_view option) = 0;
  virtual void check_options() const = 0;

  const ParameterList& parameters() const { return parameters_; }
  OptimizerState& state_of(size_t i) { return states_[i]; }
  static int64_t rows_of(const Parameter& p) { return p.value.dim() == 0 ? 1 : p.value.size(0); }

 private:
  // Runs one update of each parameter that has a gradient. prepare(i, update) fills its states and factors.
  template <class Prepare>
  void update_all(const tsr_parameter_updates& settings, const Prepare& prepare) {
    updates_.begin();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = *parameters_[i];
      if (!p.grad.defined() || p.in_backward) continue;
      const int64_t rows = rows_of(p);
      tsr_parameter_update update{};
      update.value = static_cast<float*>(p.value.raw());
      update.gradient = static_cast<const float*>(p.grad.raw());
      update.rows = rows;
      update.columns = rows == 0 ? 0 : p.value.numel() / rows;
      prepare(i, update);
      updates_.add(p.value.stream(), update);
    }
    updates_.run(settings);
  }
  static bool is_trained_in_place(const Tensor& value) {
    return value.stream() ? value.stream()->trains() : value.device() == kCpu;
  }

  ParameterList parameters_;
  std::vector<OptimizerState> states_;
  optim::ParameterUpdates updates_;
};

// PyTorch's defaults are integers and are printed as such.
OptionValue zero_or(double value) { return value == 0 ? OptionValue(int64_t{0}) : OptionValue(value); }

void require_not_negative(double value, const char* what) {
  if (!(value >= 0)) fail(Code::kInvalidArgument, what, " must not be negative, and is ", value);
}

tsr_parameter_updates settings_of(int32_t formula, bool maximize, double weight_decay) {
  tsr_parameter_updates out{};
  out.formula = formula;
  out.sign = maximize ? -1.0f : 1.0f;
  out.decay = static_cast<float>(weight_decay);
  return out;
}

float* floats(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }

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
