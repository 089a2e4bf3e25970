// The optimizers of FBGEMM, and SGD and Adadelta of PyTorch, as optimizer/1 components: options, constants of a step,
// and the choice of instruction set. The formulas are in row_updates.inc.
#include <cmath>
#include <string>
#include <vector>

#include "row_updates.h"
#include "tessera/sdk/isa.h"
#include "tessera/sdk/optimizer.h"
#include "tessera/sdk/plugin.h"

namespace {

namespace sdk = tessera::sdk;
using tessera_optimizers::Rows;
using tessera_optimizers::RowUpdates;
using tessera_optimizers::Terms;
using tessera_optimizers::UpdateRows;
using tessera_optimizers::WeightDecay;

const RowUpdates& best_row_updates() {
  const sdk::IsaVariant variants[] = {
#if TESSERA_X86
    {"avx512",
     __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"),
     &tessera_optimizers::avx512::kRowUpdates},
    {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"), &tessera_optimizers::avx2::kRowUpdates},
#endif
    {"portable", true, &tessera_optimizers::portable::kRowUpdates},
  };
  return *static_cast<const RowUpdates*>(sdk::choose_isa(variants).table);
}

double number_in(sdk::Options& options, const char* key, double otherwise, double below) {
  const double value = options.number(key, otherwise);
  if (!(value >= 0 && value < below)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"", key, "\" is ", value, " but must be at least 0",
              std::isfinite(below) ? " and below 1" : " and finite");
  }
  return value;
}

// How an optimizer's formula uses weight_decay.
enum class Decay {
  kNever,   // not at all
  kByMode,  // as weight_decay_mode says
  kAlways,  // as a term of the formula, whatever the mode
};

// Refuses a decay that would have no effect.
WeightDecay weight_decay_mode(sdk::Options& options, Decay decay, double weight_decay) {
  const std::string mode = options.string("weight_decay_mode", "none");
  if (mode != "none" && mode != "l2" && mode != "decouple")
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay_mode\" is \"", mode, "\" but must be none, l2 or decouple");
  if (decay == Decay::kNever && weight_decay > 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay\" is ", weight_decay,
              ", but this optimizer has no weight decay: leave it out");
  }
  if (decay == Decay::kByMode && weight_decay > 0 && mode == "none") {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay\" is ", weight_decay,
              ", but \"weight_decay_mode\" is none: set it to l2 or decouple, or leave weight_decay out");
  }
  if (decay != Decay::kByMode && mode != "none") {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay_mode\" is \"", mode,
              "\", but this optimizer has no choice of modes: leave it out");
  }
  if (mode != "none" && weight_decay == 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "option \"weight_decay_mode\" is \"", mode,
              "\", but weight_decay is 0: set it, or leave weight_decay_mode out");
  }
  return mode == "none" ? WeightDecay::kNone : mode == "l2" ? WeightDecay::kL2 : WeightDecay::kDecouple;
}

// The hyperparameters, with FBGEMM's defaults. Every optimizer accepts every key, so that one set of fused parameters
// works for all of them; each reads the keys of its formula. Weight decay is an exception, because a user who sets it
// expects an effect.
class Hyper {
 public:
  Hyper(sdk::Options& options, Decay decay)
      : learning_rate_(number_in(options, "learning_rate", 0.01, INFINITY)),
        beta1_(static_cast<float>(number_in(options, "beta1", 0.9, 1))),
        beta2_(static_cast<float>(number_in(options, "beta2", 0.999, 1))) {
    const double weight_decay = number_in(options, "weight_decay", 0, INFINITY);
    step_.eps = static_cast<float>(number_in(options, "eps", 1e-8, INFINITY));
    step_.weight_decay = static_cast<float>(weight_decay);
    step_.weight_decay_mode = weight_decay_mode(options, decay, weight_decay);
    step_.beta1 = beta1_;
    step_.beta2 = beta2_;
    step_.eta = static_cast<float>(number_in(options, "eta", 0.001, INFINITY));
    step_.momentum = static_cast<float>(number_in(options, "momentum", 0.9, INFINITY));
  }

  double learning_rate() const { return learning_rate_; }

  Terms at(const tsr_update& update, bool bias_correction) const {
    Terms step = step_;
    step.learning_rate = static_cast<float>(update.learning_rate);
    if (bias_correction) {
      const double t = static_cast<double>(update.step);
      step.correction1 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta1_), t)));
      step.correction2 = static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta2_), t)));
    }
    return step;
  }

 private:
  double learning_rate_;
  float beta1_;
  float beta2_;
  Terms step_{};
};

constexpr sdk::Optimizer::State kM1PerRow{"momentum1", TSR_STATE_PER_ROW};
constexpr sdk::Optimizer::State kM1{"momentum1", TSR_STATE_PER_ELEMENT};
constexpr sdk::Optimizer::State kM2PerRow{"momentum2", TSR_STATE_PER_ROW};
constexpr sdk::Optimizer::State kM2{"momentum2", TSR_STATE_PER_ELEMENT};

// The optimizer with these loops and states.
template <UpdateRows RowUpdates::*kLoops, Decay kDecay, bool kBiasCorrection, const sdk::Optimizer::State&... kStates>
class Fused : public sdk::Optimizer {
 public:
  explicit Fused(sdk::Options& options) : hyper_(options, kDecay), update_(best_row_updates().*kLoops) {}

  double learning_rate() const { return hyper_.learning_rate(); }
  std::vector<State> states() const { return {kStates...}; }
  void update_rows(const tsr_update& update, int64_t dim, int64_t count, float* const* weights,
                   const float* const* grads, float* const* row_states) const noexcept {
    update_(hyper_.at(update, kBiasCorrection), Rows{dim, count, weights, grads, row_states});
  }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* row_states) const noexcept {
    update_rows(update, dim, 1, &weight, &grad, row_states);
  }

 private:
  Hyper hyper_;
  UpdateRows update_;
};

// The formulas have names (abi/optimizer.h), by which kernels may compute them themselves.
struct ExactSgd : Fused<&RowUpdates::exact_sgd, Decay::kByMode, false> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.exact_sgd/1";
};
struct ExactAdagrad : Fused<&RowUpdates::exact_adagrad, Decay::kByMode, false, kM1> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.exact_adagrad/1";
};
struct ExactRowwiseAdagrad : Fused<&RowUpdates::exact_rowwise_adagrad, Decay::kByMode, false, kM1PerRow> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.exact_rowwise_adagrad/1";
};
struct Adam : Fused<&RowUpdates::adam, Decay::kAlways, true, kM1, kM2> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.adam/1";
};
struct PartialRowwiseAdam : Fused<&RowUpdates::partial_rowwise_adam, Decay::kAlways, true, kM1, kM2PerRow> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.partial_rowwise_adam/1";
};
struct Lamb : Fused<&RowUpdates::lamb, Decay::kAlways, true, kM1, kM2> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.lamb/1";
};
struct PartialRowwiseLamb : Fused<&RowUpdates::partial_rowwise_lamb, Decay::kAlways, true, kM1, kM2PerRow> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.partial_rowwise_lamb/1";
};
struct LarsSgd : Fused<&RowUpdates::lars_sgd, Decay::kAlways, false, kM1> {
  using Fused::Fused;
  static constexpr const char* kFormula = "tessera.lars_sgd/1";
};

// torch.optim.SGD with its options. It has a state only if momentum is used.
class Sgd : public sdk::Optimizer {
 public:
  static constexpr const char* kFormula = "tessera.sgd/1";
  explicit Sgd(sdk::Options& options)
      : learning_rate_(number_in(options, "learning_rate", 0.01, INFINITY)), formulas_(best_row_updates()) {
    terms_.momentum = static_cast<float>(number_in(options, "momentum", 0, INFINITY));
    terms_.weight_decay = static_cast<float>(number_in(options, "weight_decay", 0, INFINITY));
    terms_.nesterov = options.flag("nesterov", false);
    if (terms_.nesterov && terms_.momentum == 0)
      sdk::fail(TSR_INVALID_ARGUMENT, "option \"nesterov\" is true, but \"momentum\" is 0: give both or neither");
    const double dampening = number_in(options, "dampening", 0, INFINITY);
    if (dampening > 0 && (terms_.momentum == 0 || terms_.nesterov))
      sdk::fail(TSR_INVALID_ARGUMENT, "option \"dampening\" is ", dampening,
                ", but it needs momentum, and not Nesterov's: leave it out");
    terms_.undamped = static_cast<float>(1 - dampening);
  }
  double learning_rate() const { return learning_rate_; }
  std::vector<State> states() const {
    if (terms_.momentum == 0) return {};
    return {{"momentum_buffer", TSR_STATE_PER_ELEMENT}};
  }
  void update_rows(const tsr_update& update, int64_t dim, int64_t count, float* const* weights,
                   const float* const* grads, float* const* row_states) const noexcept {
    Terms step = terms_;
    step.learning_rate = static_cast<float>(update.learning_rate);
    if (update.step == 1) step.undamped = 1;  // momentum begins with the first gradient, undamped
    const UpdateRows formula = step.momentum > 0       ? formulas_.momentum_sgd
                               : step.weight_decay > 0 ? formulas_.decayed_sgd
                                                       : formulas_.exact_sgd;
    formula(step, Rows{dim, count, weights, grads, row_states});
  }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* row_states) const noexcept {
    update_rows(update, dim, 1, &weight, &grad, row_states);
  }

 private:
  double learning_rate_;
  Terms terms_{};
  const RowUpdates& formulas_;
};

// torch.optim.Adadelta with its options.
class Adadelta : public sdk::Optimizer {
 public:
  static constexpr const char* kFormula = "tessera.adadelta/1";
  explicit Adadelta(sdk::Options& options)
      : learning_rate_(number_in(options, "learning_rate", 1, INFINITY)), update_(best_row_updates().adadelta) {
    terms_.eps = static_cast<float>(number_in(options, "eps", 1e-6, INFINITY));
    terms_.weight_decay = static_cast<float>(number_in(options, "weight_decay", 0, INFINITY));
    terms_.rho = static_cast<float>(number_in(options, "rho", 0.9, 1));
    if (terms_.eps == 0)
      sdk::fail(TSR_INVALID_ARGUMENT, "option \"eps\" is 0, with which no row would ever move: it must be above 0");
  }
  double learning_rate() const { return learning_rate_; }
  std::vector<State> states() const {
    return {{"square_avg", TSR_STATE_PER_ELEMENT}, {"acc_delta", TSR_STATE_PER_ELEMENT}};
  }
  void update_rows(const tsr_update& update, int64_t dim, int64_t count, float* const* weights,
                   const float* const* grads, float* const* row_states) const noexcept {
    Terms step = terms_;
    step.learning_rate = static_cast<float>(update.learning_rate);
    update_(step, Rows{dim, count, weights, grads, row_states});
  }
  void update_row(const tsr_update& update, int64_t dim, float* weight, const float* grad,
                  float* const* row_states) const noexcept {
    update_rows(update, dim, 1, &weight, &grad, row_states);
  }

 private:
  double learning_rate_;
  Terms terms_{};
  UpdateRows update_;
};

// Leaves rows unchanged; their gradients are handed out.
class None : public sdk::Optimizer {
 public:
  explicit None(sdk::Options& options) : hyper_(options, Decay::kNever) {}
  double learning_rate() const { return hyper_.learning_rate(); }

 private:
  Hyper hyper_;
};

}  // namespace

using tessera::sdk::component;
TESSERA_PLUGIN(
    "optimizers", "0.1.0", component<ExactSgd>({.id = "exact_sgd", .version = "0.1.0", .about = "w -= lr*g"}),
    component<ExactAdagrad>({.id = "exact_adagrad", .version = "0.1.0", .about = "Adagrad, a state per element"}),
    component<ExactRowwiseAdagrad>(
        {.id = "exact_rowwise_adagrad", .version = "0.1.0", .about = "Adagrad, a state per row", .priority = 1}),
    component<Adam>({.id = "adam", .version = "0.1.0", .about = "Adam"}),
    component<PartialRowwiseAdam>(
        {.id = "partial_rowwise_adam", .version = "0.1.0", .about = "Adam, second moment per row"}),
    component<Lamb>({.id = "lamb", .version = "0.1.0", .about = "LAMB, norms per row"}),
    component<PartialRowwiseLamb>(
        {.id = "partial_rowwise_lamb", .version = "0.1.0", .about = "LAMB, second moment per row"}),
    component<LarsSgd>({.id = "lars_sgd", .version = "0.1.0", .about = "momentum SGD, rate scaled by norms per row"}),
    component<Sgd>({.id = "sgd", .version = "0.1.0", .about = "torch.optim.SGD: momentum has a state"}),
    component<Adadelta>({.id = "adadelta", .version = "0.1.0", .about = "torch.optim.Adadelta"}),
    component<None>({.id = "none", .version = "0.1.0", .about = "hands gradients out, updates nothing"}));
