// tessera/optim.h - optimizers of dense parameters and wrappers of optimizers, with TorchRec's names and state dicts.
//
// Optimizers are used by one thread at a time. After the first step, a step allocates nothing. Fused optimizers of
// embedding tables live in kernels; embedding_modules.h shows them as KeyedOptimizers, so they can be combined with
// these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/abi/draft/device_ops.h"
#include "tessera/tensor.h"

namespace tessera {

// A named tensor that is trained. The model, which writes grad, and its optimizer, which writes value, share it.
struct Parameter {
  std::string name;
  Tensor value;              // float32; a meta tensor if the values live in a kernel
  Tensor grad;               // shaped like value; undefined: no gradient in this step
  bool in_backward = false;  // updated during backward, so these optimizers skip it
  Tensor grad_buffer;        // a place for grad that suits its next use; undefined: anywhere
  bool int8_rows = false;    // TSR_PARAMETER_INT8_ROWS
};
using ParameterPtr = std::shared_ptr<Parameter>;
using ParameterList = std::vector<ParameterPtr>;

// Selects parameters that are (include) or are not updated during backward. A dense optimizer is made for
// `in_backward_optimizer_filter(model, false)`.
ParameterList in_backward_optimizer_filter(const ParameterList& parameters, bool include = false);

// An optimizer's option with Python's types; monostate is None.
using OptionValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::pair<double, double>>;
std::string to_string(const OptionValue& value);  // Python's repr

struct ParamGroup {
  std::vector<std::string> params;                           // keys
  std::vector<std::pair<std::string, OptionValue>> options;  // sorted by name
  double number(std::string_view option) const;              // kNotFound names the existing options
};

using OptimizerState = std::vector<std::pair<std::string, Tensor>>;  // of one parameter: "momentum_buffer", "sum", ...
struct OptimizerStateDict {
  std::vector<std::pair<std::string, OptimizerState>> state;  // by parameter key; only parameters with state
  std::optional<std::vector<ParamGroup>> param_groups;        // after save_param_groups(true)
};

// The interface of all optimizers: parameters, state and options by key.
class KeyedOptimizer {
 public:
  struct Item {
    std::string key;
    ParameterPtr parameter;
  };
  virtual ~KeyedOptimizer() = default;

  virtual void step() = 0;
  void zero_grad();  // gradients become undefined

  virtual std::vector<Item> params() const = 0;
  // Tensors are shared with the optimizer, or are copies if a kernel owns them. Change them with set_state().
  virtual std::vector<std::pair<std::string, OptimizerState>> state() const = 0;
  // Copies into one parameter's state; empty: resets it to before the first step. kInvalidArgument: wrong key, names or
  // shapes.
  virtual void set_state(std::string_view key, const OptimizerState& state) = 0;
  virtual std::vector<ParamGroup> param_groups() const = 0;
  virtual size_t num_groups() const = 0;
  // Changes "lr" or another number of a group. kInvalidArgument: the group has no such option.
  virtual void set_option(size_t group, std::string_view option, double value) = 0;
  void set_learning_rate(double value);  // of all groups

  std::vector<std::string> param_keys() const;
  std::vector<std::string> state_keys() const;

  OptimizerStateDict state_dict() const;
  // State that the first step makes must exist: call init_state() before. kInvalidArgument: another number of
  // parameters with state, an unknown key, or another number of entries.
  void load_state_dict(const OptimizerStateDict& dict);
  // Runs a step with zero gradients to make the state. It applies weight decay, as TorchRec's does.
  virtual void init_state();
  void save_param_groups(bool save) { save_param_groups_ = save; }
  // kUnimplemented: combine optimizers instead.
  void add_param_group(const ParamGroup& group);

  virtual std::string class_name() const = 0;
  virtual std::string str() const;  // PyTorch's text

 protected:
  virtual void after_load() {}  // called when load_state_dict() is done
  static void loaded(KeyedOptimizer& optimizer) { optimizer.after_load(); }

 private:
  bool save_param_groups_ = false;
};
using KeyedOptimizerPtr = std::shared_ptr<KeyedOptimizer>;

// tests/conformance/README.md, section optimizer_wrappers, has the formulas. g = gradient (negated if maximize) +
// weight_decay * w. Parameters are float32, in host memory or on a device. On a device, one call updates all of them in
// stream order, and the tensors of state() are copies. A parameter without gradient and its state are left alone.
// kInvalidArgument: settings make no sense, two parameters have the same name, or a dtype is not float32.
struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};
KeyedOptimizerPtr make_sgd(const SgdOptions& options, ParameterList parameters);

struct AdagradOptions {  // also for RowWiseAdagrad, which keeps one sum of mean squares per row
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};
KeyedOptimizerPtr make_adagrad(const AdagradOptions& options, ParameterList parameters);
KeyedOptimizerPtr make_rowwise_adagrad(const AdagradOptions& options, ParameterList parameters);

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
  // AdamW: a step first multiplies the value by 1 - lr * weight_decay, which then is no part of the gradient.
  bool decoupled_weight_decay = false;
};
KeyedOptimizerPtr make_adam(const AdamOptions& options, ParameterList parameters);

struct RmspropOptions {
  double lr = 1e-2;
  double alpha = 0.99;  // decay of the mean of squares
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};
// PyTorch's RMSprop without momentum and not centered.
KeyedOptimizerPtr make_rmsprop(const RmspropOptions& options, ParameterList parameters);

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;  // decay of the means of squares, of gradients and of steps
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};
// PyTorch's Adadelta (Zeiler, ADADELTA: An Adaptive Learning Rate Method, 2012), in host memory. kUnimplemented: a
// parameter is on a device.
KeyedOptimizerPtr make_adadelta(const AdadeltaOptions& options, ParameterList parameters);

// Makes an optimizer by name, for configs: "sgd", "adadelta", "adagrad", "rowwise_adagrad", "adam", "adamw", "rmsprop",
// or PyTorch's class names. `options` is a JSON object with PyTorch's names. "learning_rate" stands for "lr", and Adam
// takes "betas": [b1, b2] or "beta1" and "beta2". kNotFound lists the optimizers, kInvalidArgument the options.
struct DenseOptimizerSpec {
  std::string name;
  std::string options = "{}";
  bool operator==(const DenseOptimizerSpec&) const = default;
};
KeyedOptimizerPtr make_dense_optimizer(const DenseOptimizerSpec& spec, ParameterList parameters);
std::vector<std::string> dense_optimizer_names();
// The optimizer's name in that list for "Adam" as for "adam"; others stay.
std::string dense_optimizer_name(const std::string& name);

// Combines several optimizers into one. Keys are "name.key"; without a name the key, with an empty key the name.
class CombinedOptimizer : public KeyedOptimizer {
 public:
  struct Member {
    std::string name;  // may be empty
    KeyedOptimizerPtr optimizer;
  };
  explicit CombinedOptimizer(std::vector<Member> members);  // kInvalidArgument: a key occurs twice
  const std::vector<Member>& members() const { return members_; }

  void step() override;
  std::vector<Item> params() const override;
  std::vector<std::pair<std::string, OptimizerState>> state() const override;
  void set_state(std::string_view key, const OptimizerState& state) override;
  std::vector<ParamGroup> param_groups() const override;
  size_t num_groups() const override;
  void set_option(size_t group, std::string_view option, double value) override;
  void init_state() override;
  std::string class_name() const override { return "CombinedOptimizer"; }
  std::string str() const override;

 protected:
  void after_load() override;

 private:
  std::vector<Member> members_;
};

// Forwards everything to the wrapped optimizer.
class OptimizerWrapper : public KeyedOptimizer {
 public:
  explicit OptimizerWrapper(KeyedOptimizerPtr optimizer) : optimizer_(std::move(optimizer)) {}
  void step() override { optimizer_->step(); }
  std::vector<Item> params() const override { return optimizer_->params(); }
  std::vector<std::pair<std::string, OptimizerState>> state() const override { return optimizer_->state(); }
  void set_state(std::string_view key, const OptimizerState& state) override { optimizer_->set_state(key, state); }
  std::vector<ParamGroup> param_groups() const override { return optimizer_->param_groups(); }
  size_t num_groups() const override { return optimizer_->num_groups(); }
  void set_option(size_t group, std::string_view option, double value) override {
    optimizer_->set_option(group, option, value);
  }
  void init_state() override { optimizer_->init_state(); }

 protected:
  void after_load() override { loaded(*optimizer_); }
  KeyedOptimizer& inner() const { return *optimizer_; }

 private:
  KeyedOptimizerPtr optimizer_;
};

enum class GradientClipping { kNorm, kValue, kNone };
GradientClipping gradient_clipping_from(std::string_view name);  // "norm", "value", "none"

// Clips the gradients in place before the wrapped optimizer's step, all parameters together. It clips by value, or
// multiplies by min(1, max_gradient / (norm + 1e-6)) as torch.nn.utils.clip_grad_norm_ does: an infinite norm makes the
// gradients 0, and a NaN norm makes them NaN. After all_reduce_gradients() all ranks have the same norm. If all
// gradients are on one device that clips (abi/draft/device_ops.h), they are clipped in stream order without a wait.
class GradientClippingOptimizer : public OptimizerWrapper {
 public:
  struct Options {
    GradientClipping clipping = GradientClipping::kNone;
    double max_gradient = 0.1;
    double norm_type = 2;  // p of the norm; infinity: the largest magnitude
    bool track_grad_norm = false;
  };
  GradientClippingOptimizer(KeyedOptimizerPtr optimizer, Options options);
  void step() override;
  // The norm before clipping. nullopt: before the first step, if it was neither needed nor tracked, or if no parameter
  // had a gradient. Waits for a device.
  std::optional<double> last_total_grad_norm() const;
  std::string class_name() const override { return "GradientClippingOptimizer"; }

 private:
  void clip_on_host();
  void clip_on_device(DeviceStream& stream);

  Options options_;
  std::vector<Item> items_;
  std::optional<double> last_norm_;
  Tensor norm_;                          // set if the norm is on a device: float64, the first element
  std::vector<Tensor> grads_;            // scratch
  std::vector<tsr_gradient> on_device_;  // scratch
};

// Learning rates over the steps of a run.
//
//   const LearningRateSchedule rate({"linear?steps=500", "cosine?to=0.1"}, 10000);
//   optimizer.set_learning_rate(0.05 * rate.factor(step));
//
// The factor of a learning rate for each step. It has stages, one after the other, each "shape?option=value&...".
// With i of a stage's n steps done, x = i / n:
//
//   constant     factor                                            factor = 1
//   linear       from + (to - from) x                              from = 0, to = 1: a warm-up
//   cosine       to + (from - to) (1 + cos(pi x)) / 2              from = 1, to = 0
//   polynomial   to + (from - to) (1 - x)^power                    from = 1, to = 0, power = 2
//   exponential  from gamma^i                                      from = 1, gamma is needed
//   step         from gamma^floor(i / every)                       from = 1, gamma and every are needed
//
// `steps` is n. Only the last stage may leave it out, and then lasts to the end of the run. After the last stage its
// final value stays. The shapes are those of torch.optim.lr_scheduler: LinearLR, CosineAnnealingLR, PolynomialLR,
// ExponentialLR, StepLR.
class LearningRateSchedule {
 public:
  LearningRateSchedule() = default;  // always 1
  // `steps`: steps of the run, including earlier ones. kInvalidArgument names the stage and its error.
  LearningRateSchedule(const std::vector<std::string>& stages, int64_t steps);

  bool empty() const { return stages_.empty(); }
  double factor(int64_t step) const;  // for step 0, 1, ...
  // The steps of all stages. A last stage without steps counts as what is left of the run, or as 1.
  int64_t last_step() const { return stages_.empty() ? 0 : stages_.back().first + stages_.back().steps; }

 private:
  enum class Shape { kConstant, kLinear, kCosine, kPolynomial, kExponential, kStep };
  struct Stage {
    Shape shape = Shape::kConstant;
    int64_t first = 0, steps = 0;
    double from = 1, to = 1, power = 1, gamma = 1;
    int64_t every = 1;
    double after(int64_t done) const;
  };
  std::vector<Stage> stages_;
};

}  // namespace tessera
