// The base of optimizers of float32 parameters: parameters, states, and one group of options.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "optim/parameter_updates.h"
#include "tessera/optim.h"

namespace tessera::optim {

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
    check_gradients();
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

  // Fails before anything changes if a gradient does not fit its parameter.
  void check_gradients() const {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& p = *parameters_[i];
      if (!p.grad.defined() || p.in_backward) continue;
      if (p.grad.dtype() != DType::kFloat32 || p.grad.shape() != p.value.shape()) {
        fail(Code::kInvalidArgument, "the gradient of parameter \"", p.name,
             "\" must be float32 of the parameter's shape; sparse gradients must be made dense first");
      }
      TESSERA_CHECK(p.grad.stream() == p.value.stream(), "the gradient of ", p.name, " is beside its value");
    }
  }
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
  ParameterUpdates updates_;
};

// PyTorch's defaults are integers and are printed as such.
inline OptionValue zero_or(double value) { return value == 0 ? OptionValue(int64_t{0}) : OptionValue(value); }

inline void require_not_negative(double value, const char* what) {
  if (!(value >= 0)) fail(Code::kInvalidArgument, what, " must not be negative, and is ", value);
}

inline tsr_parameter_updates settings_of(int32_t formula, bool maximize, double weight_decay) {
  tsr_parameter_updates out{};
  out.formula = formula;
  out.sign = maximize ? -1.0f : 1.0f;
  out.decay = static_cast<float>(weight_decay);
  return out;
}

inline float* floats(const Tensor& tensor) { return static_cast<float*>(tensor.raw()); }

}  // namespace tessera::optim
