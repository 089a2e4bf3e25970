// SGD, Adagrad, RowWiseAdagrad, Adam of float32 parameters in host memory. The loops are written to vectorise: restrict
// pointers, no branches inside, settings in float as PyTorch applies them.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tessera/optim.h"

namespace tessera {
namespace {

// Parameters, their states and one group of options; a formula is what subclasses add.
class DenseOptimizer : public KeyedOptimizer {
 public:
  explicit DenseOptimizer(ParameterList parameters) : parameters_(std::move(parameters)) {
    std::set<std::string> seen;
    for (const ParameterPtr& p : parameters_) {
      if (!seen.insert(p->name).second) fail(Code::kInvalidArgument, "two parameters have the name \"", p->name, "\"");
      if (p->in_backward) continue;
      if (p->value.dtype() != DType::kFloat32 || p->value.device() != kCpu || !p->value.defined()) {
        fail(Code::kInvalidArgument, "parameter \"", p->name, "\" must be float32 in host memory for this optimizer");
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
             "\" must be float32 of the parameter's shape; sparse gradients have to be made dense first");
      }
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Parameter& p = *parameters_[i];
      if (p.grad.defined() && !p.in_backward) update(p, states_[i]);
    }
  }

  std::vector<Item> params() const override {
    std::vector<Item> out;
    for (const ParameterPtr& p : parameters_) out.push_back({p->name, p});
    return out;
  }

  std::vector<std::pair<std::string, OptimizerState>> state() const override {
    std::vector<std::pair<std::string, OptimizerState>> out;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!states_[i].empty()) out.emplace_back(parameters_[i]->name, states_[i]);
    }
    return out;
  }

  void set_state(std::string_view key, const OptimizerState& given) override {
    size_t i = 0;
    while (i < parameters_.size() && parameters_[i]->name != key) ++i;
    if (i == parameters_.size()) {
      fail(Code::kInvalidArgument, "there is state for \"", key, "\", which is no parameter of this optimizer");
    }
    if (given.empty() && made_by_first_step()) return states_[i].clear();
    OptimizerState into =
        states_[i].empty() && !parameters_[i]->in_backward ? fresh_state(*parameters_[i]) : states_[i];
    for (const bool write : {false, true}) {  // all is checked before anything changes
      if (given.size() != into.size()) {
        fail(Code::kInvalidArgument, "parameter \"", key, "\" has ", into.size(), " states, but ", given.size(),
             " were given");
      }
      for (auto& [name, have] : into) {
        const auto same = std::find_if(given.begin(), given.end(), [&](const auto& e) { return e.first == name; });
        if (same == given.end() || same->second.dtype() != DType::kFloat32 || same->second.shape() != have.shape()) {
          fail(Code::kInvalidArgument, "parameter \"", key, "\" needs a state \"", name,
               "\" of its own shape, float32");
        }
        if (write) std::copy_n(same->second.data<float>(), have.numel(), have.data<float>());
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
  virtual void update(Parameter& p, OptimizerState& state) = 0;
  // The state before any step, and whether a parameter gets it with its first step or from the beginning.
  virtual OptimizerState fresh_state(const Parameter& p) const = 0;
  virtual bool made_by_first_step() const { return true; }
  virtual Options options() const = 0;
  virtual double* number(std::string_view option) = 0;
  virtual void check_options() const = 0;

  const ParameterList& parameters() const { return parameters_; }
  OptimizerState& state_of(size_t i) { return states_[i]; }

 private:
  ParameterList parameters_;
  std::vector<OptimizerState> states_;
};

// PyTorch's defaults are integers, and print as such.
OptionValue zero_or(double value) { return value == 0 ? OptionValue(int64_t{0}) : OptionValue(value); }

void require_not_negative(double value, const char* what) {
  if (!(value >= 0)) fail(Code::kInvalidArgument, what, " must not be negative, and is ", value);
}

// The effective gradient: [negated] g + decay * w.
struct Effective {
  float sign;
  float decay;
  float operator()(float g, float w) const { return sign * g + decay * w; }
};
Effective effective(bool maximize, double weight_decay) {
  return {maximize ? -1.0f : 1.0f, static_cast<float>(weight_decay)};
}

void sgd_loop(int64_t n, float* __restrict w, const float* __restrict g, float lr, Effective e) {
  for (int64_t i = 0; i < n; ++i) w[i] -= lr * e(g[i], w[i]);
}

// lr_grad and lr_buffer: what gradient and momentum contribute to the step.
void sgd_momentum_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict buffer,
                       float momentum, float share, float lr_grad, float lr_buffer, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    buffer[i] = momentum * buffer[i] + share * gradient;
    w[i] -= lr_grad * gradient + lr_buffer * buffer[i];
  }
}

class Sgd : public DenseOptimizer {
 public:
  Sgd(const SgdOptions& options, ParameterList parameters) : DenseOptimizer(std::move(parameters)), o_(options) {
    check_options();
  }

 protected:
  void update(Parameter& p, OptimizerState& state) override {
    const int64_t n = p.value.numel();
    const Effective e = effective(o_.maximize, o_.weight_decay);
    float* w = p.value.data<float>();
    const float* g = p.grad.data<float>();
    const float lr = static_cast<float>(o_.lr);
    if (o_.momentum == 0) return sgd_loop(n, w, g, lr, e);
    const bool first = state.empty();
    if (first) state = fresh_state(p);
    const float momentum = static_cast<float>(o_.momentum);
    const float share = first ? 1.0f : static_cast<float>(1 - o_.dampening);
    sgd_momentum_loop(n, w, g, state[0].second.data<float>(), momentum, share, o_.nesterov ? lr : 0.0f,
                      o_.nesterov ? lr * momentum : lr, e);
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    if (o_.momentum == 0) return {};
    return {{"momentum_buffer", Tensor::zeros(p.value.shape())}};
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

void adagrad_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict sum, float rate,
                  float eps, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    sum[i] += gradient * gradient;
    w[i] -= rate * gradient / (std::sqrt(sum[i]) + eps);
  }
}

// The sum of squares in eight lanes, since compilers do not reorder sums by themselves.
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

// Adagrad, with a sum per element or per row.
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
  void update(Parameter& p, OptimizerState& state) override {
    float& step = *state[0].second.data<float>();
    const float rate = static_cast<float>(o_.lr / (1 + static_cast<double>(step) * o_.lr_decay));
    step += 1;
    const float eps = static_cast<float>(o_.eps);
    const Effective e = effective(o_.maximize, o_.weight_decay);
    float *w = p.value.data<float>(), *sum = state[1].second.data<float>();
    const float* g = p.grad.data<float>();
    if (!per_row_) return adagrad_loop(p.value.numel(), w, g, sum, rate, eps, e);
    const int64_t rows = rows_of(p), columns = rows == 0 ? 0 : p.value.numel() / rows;
    for (int64_t r = 0; r < rows; ++r, w += columns, g += columns) {
      sum[r] += square_sum(columns, w, g, e) / static_cast<float>(std::max<int64_t>(columns, 1));
      sgd_loop(columns, w, g, rate / (std::sqrt(sum[r]) + eps), e);
    }
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    Tensor sum = Tensor::empty(per_row_ ? Shape{rows_of(p), 1} : p.value.shape());
    sum.fill(o_.initial_accumulator_value);
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
  static int64_t rows_of(const Parameter& p) { return p.value.dim() == 0 ? 1 : p.value.size(0); }

  AdagradOptions o_;
  bool per_row_;
};

struct AdamStep {
  float beta1, beta2;
  float step_size;   // lr / (1 - beta1^s)
  float root_scale;  // 1 / sqrt(1 - beta2^s)
  float eps;
};

void adam_loop(int64_t n, float* __restrict w, const float* __restrict g, float* __restrict m, float* __restrict v,
               AdamStep s, Effective e) {
  for (int64_t i = 0; i < n; ++i) {
    const float gradient = e(g[i], w[i]);
    m[i] += (1 - s.beta1) * (gradient - m[i]);
    v[i] = s.beta2 * v[i] + (1 - s.beta2) * gradient * gradient;
    w[i] -= s.step_size * m[i] / (std::sqrt(v[i]) * s.root_scale + s.eps);
  }
}

class Adam : public DenseOptimizer {
 public:
  Adam(const AdamOptions& options, ParameterList parameters) : DenseOptimizer(std::move(parameters)), o_(options) {
    check_options();
  }

 protected:
  void update(Parameter& p, OptimizerState& state) override {
    if (state.empty()) state = fresh_state(p);
    float& step = *state[0].second.data<float>();
    step += 1;
    const AdamStep s{static_cast<float>(o_.beta1), static_cast<float>(o_.beta2),
                     static_cast<float>(o_.lr / (1 - std::pow(o_.beta1, static_cast<double>(step)))),
                     static_cast<float>(1 / std::sqrt(1 - std::pow(o_.beta2, static_cast<double>(step)))),
                     static_cast<float>(o_.eps)};
    adam_loop(p.value.numel(), p.value.data<float>(), p.grad.data<float>(), state[1].second.data<float>(),
              state[2].second.data<float>(), s, effective(o_.maximize, o_.weight_decay));
  }
  OptimizerState fresh_state(const Parameter& p) const override {
    return {{"step", Tensor::scalar(0.0f)},
            {"exp_avg", Tensor::zeros(p.value.shape())},
            {"exp_avg_sq", Tensor::zeros(p.value.shape())}};
  }
  Options options() const override {
    return {{"amsgrad", false},
            {"betas", std::pair(o_.beta1, o_.beta2)},
            {"capturable", false},
            {"decoupled_weight_decay", false},
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

}  // namespace tessera
