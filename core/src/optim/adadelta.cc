// PyTorch's Adadelta.
#include <cmath>

#include "optim/dense_optimizer.h"

namespace tessera {
namespace {

class Adadelta : public optim::DenseOptimizer {
 public:
  Adadelta(const AdadeltaOptions& options, ParameterList list) : DenseOptimizer(std::move(list)), o_(options) {
    check_options();
    for (const ParameterPtr& p : parameters()) {
      if (!p->in_backward && p->value.stream())
        fail(Code::kUnimplemented, "adadelta updates only parameters in host memory, and \"", p->name,
             "\" is on a device: set job.device = \"cpu\", or choose another optimizer");
    }
  }

  void step() override {
    check_gradients();
    for (size_t i = 0; i < parameters().size(); ++i) {
      Parameter& p = *parameters()[i];
      if (!p.grad.defined() || p.in_backward) continue;
      OptimizerState& state = state_of(i);
      if (state.empty()) state = fresh_state(p);
      *state[0].second.data<float>() += 1;
      update(p, state[1].second.data<float>(), state[2].second.data<float>());
    }
  }

 protected:
  OptimizerState fresh_state(const Parameter& p) const override {
    return {{"step", Tensor::scalar(0.0f)}, {"square_avg", zeros_like(p.value)}, {"acc_delta", zeros_like(p.value)}};
  }
  Options options() const override {
    return {{"capturable", false}, {"differentiable", false},
            {"eps", o_.eps},       {"foreach", std::monostate()},
            {"lr", o_.lr},         {"maximize", o_.maximize},
            {"rho", o_.rho},       {"weight_decay", optim::zero_or(o_.weight_decay)}};
  }
  double* number(std::string_view option) override {
    if (option == "lr") return &o_.lr;
    if (option == "eps") return &o_.eps;
    if (option == "rho") return &o_.rho;
    return option == "weight_decay" ? &o_.weight_decay : nullptr;
  }
  void check_options() const override {
    optim::require_not_negative(o_.lr, "lr");
    optim::require_not_negative(o_.eps, "eps");
    optim::require_not_negative(o_.weight_decay, "weight_decay");
    if (!(o_.rho >= 0 && o_.rho <= 1)) fail(Code::kInvalidArgument, "rho must be in [0, 1], and is ", o_.rho);
  }
  tsr_parameter_updates settings() const override { return {}; }
  void prepare(size_t, OptimizerState&, tsr_parameter_update&) override {}

 private:
  void update(Parameter& p, float* squares, float* deltas) const {
    const auto lr = static_cast<float>(o_.lr), rho = static_cast<float>(o_.rho), eps = static_cast<float>(o_.eps),
               decay = static_cast<float>(o_.weight_decay), sign = o_.maximize ? -1.0f : 1.0f;
    float* w = p.value.data<float>();
    const float* given = p.grad.data<float>();
    for (int64_t k = 0; k < p.value.numel(); ++k) {
      const float g = sign * given[k] + decay * w[k];
      squares[k] = rho * squares[k] + (1 - rho) * g * g;
      const float delta = std::sqrt(deltas[k] + eps) / std::sqrt(squares[k] + eps) * g;
      deltas[k] = rho * deltas[k] + (1 - rho) * delta * delta;
      w[k] -= lr * delta;
    }
  }

  AdadeltaOptions o_;
};

}  // namespace

KeyedOptimizerPtr make_adadelta(const AdadeltaOptions& options, ParameterList parameters) {
  return std::make_shared<Adadelta>(options, std::move(parameters));
}

}  // namespace tessera
