// Creates dense optimizers by name, with options in JSON.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/optim.h"
#include "tessera/sdk/nearest.h"

namespace tessera {
namespace {

using nlohmann::json;

// Reads the options one by one. An option that was never read is unknown.
class Reader {
 public:
  explicit Reader(const DenseOptimizerSpec& spec) : name_(spec.name) {
    options_ = json::parse(spec.options, nullptr, false);
    if (!options_.is_object()) {
      fail(Code::kInvalidArgument, "the options of optimizer \"", name_, "\" are not a JSON object: ", spec.options);
    }
  }
  void number(const char* key, double& into) {
    if (const json* value = take(key)) {
      if (!value->is_number()) wrong(key, "a number");
      into = value->get<double>();
    }
  }
  void flag(const char* key, bool& into) {
    if (const json* value = take(key)) {
      if (!value->is_boolean()) wrong(key, "true or false");
      into = value->get<bool>();
    }
  }
  void pair(const char* key, double& first, double& second) {
    if (const json* value = take(key)) {
      if (!value->is_array() || value->size() != 2 || !(*value)[0].is_number() || !(*value)[1].is_number()) {
        wrong(key, "a list of two numbers");
      }
      first = (*value)[0].get<double>();
      second = (*value)[1].get<double>();
    }
  }
  // PyTorch's switches for features that do not exist here may only be off.
  void off(std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
      const json* value = take(key);
      if (value != nullptr && !value->is_null() && *value != false) wrong(key, "false: it is not available");
    }
  }
  void finish() const {
    for (const auto& entry : options_.items()) {
      if (known_.find(" " + entry.key() + ",") == std::string::npos) {
        fail(Code::kInvalidArgument, "optimizer \"", name_, "\" has no option \"", entry.key(),
             "\"; it has:", known_.substr(0, known_.size() - 1));
      }
    }
  }

 private:
  const json* take(const char* key) {
    known_ += str_cat(" ", key, ",");
    const auto found = options_.find(key);
    return found == options_.end() ? nullptr : &*found;
  }
  [[noreturn]] void wrong(const char* key, const char* what) const {
    fail(Code::kInvalidArgument, "option \"", key, "\" of optimizer \"", name_, "\" must be ", what);
  }

  std::string name_;
  json options_;
  std::string known_;
};

KeyedOptimizerPtr sgd(Reader& in, ParameterList parameters) {
  SgdOptions o;
  in.number("lr", o.lr);
  in.number("learning_rate", o.lr);
  in.number("momentum", o.momentum);
  in.number("dampening", o.dampening);
  in.number("weight_decay", o.weight_decay);
  in.flag("nesterov", o.nesterov);
  in.flag("maximize", o.maximize);
  in.off({"foreach", "fused", "differentiable"});
  in.finish();
  return make_sgd(o, std::move(parameters));
}

AdagradOptions adagrad_options(Reader& in) {
  AdagradOptions o;
  in.number("lr", o.lr);
  in.number("learning_rate", o.lr);
  in.number("lr_decay", o.lr_decay);
  in.number("weight_decay", o.weight_decay);
  in.number("initial_accumulator_value", o.initial_accumulator_value);
  in.number("eps", o.eps);
  in.flag("maximize", o.maximize);
  in.off({"foreach", "fused", "differentiable"});
  in.finish();
  return o;
}

KeyedOptimizerPtr adam_like(Reader& in, ParameterList parameters, bool decoupled) {
  AdamOptions o{.decoupled_weight_decay = decoupled};
  if (decoupled) o.weight_decay = 0.01;
  in.number("lr", o.lr);
  in.number("learning_rate", o.lr);
  in.pair("betas", o.beta1, o.beta2);
  in.number("beta1", o.beta1);
  in.number("beta2", o.beta2);
  in.number("eps", o.eps);
  in.number("weight_decay", o.weight_decay);
  in.flag("maximize", o.maximize);
  if (!decoupled) in.flag("decoupled_weight_decay", o.decoupled_weight_decay);
  in.off({"amsgrad", "foreach", "fused", "capturable", "differentiable"});
  in.finish();
  return make_adam(o, std::move(parameters));
}

KeyedOptimizerPtr rmsprop(Reader& in, ParameterList parameters) {
  RmspropOptions o;
  in.number("lr", o.lr);
  in.number("learning_rate", o.lr);
  in.number("alpha", o.alpha);
  in.number("eps", o.eps);
  in.number("weight_decay", o.weight_decay);
  in.flag("maximize", o.maximize);
  in.off({"centered", "foreach", "capturable", "differentiable"});
  in.finish();
  return make_rmsprop(o, std::move(parameters));
}

KeyedOptimizerPtr adadelta(Reader& in, ParameterList parameters) {
  AdadeltaOptions o;
  in.number("lr", o.lr);
  in.number("learning_rate", o.lr);
  in.number("rho", o.rho);
  in.number("eps", o.eps);
  in.number("weight_decay", o.weight_decay);
  in.flag("maximize", o.maximize);
  in.off({"foreach", "capturable", "differentiable"});
  in.finish();
  return make_adadelta(o, std::move(parameters));
}

struct Entry {
  const char* name;
  const char* class_name;  // PyTorch's name
  KeyedOptimizerPtr (*make)(Reader&, ParameterList);
};
constexpr Entry kEntries[] = {
    {"adadelta", "Adadelta", adadelta},
    {"adagrad", "Adagrad", [](Reader& in, ParameterList p) { return make_adagrad(adagrad_options(in), std::move(p)); }},
    {"adam", "Adam", [](Reader& in, ParameterList p) { return adam_like(in, std::move(p), false); }},
    {"adamw", "AdamW", [](Reader& in, ParameterList p) { return adam_like(in, std::move(p), true); }},
    {"rmsprop", "RMSprop", rmsprop},
    {"rowwise_adagrad", "RowWiseAdagrad",
     [](Reader& in, ParameterList p) { return make_rowwise_adagrad(adagrad_options(in), std::move(p)); }},
    {"sgd", "SGD", sgd},
};

}  // namespace

std::vector<std::string> dense_optimizer_names() {
  std::vector<std::string> out;
  for (const Entry& entry : kEntries) out.emplace_back(entry.name);
  return out;
}

std::string dense_optimizer_name(const std::string& name) {
  const auto found =
      std::find_if(std::begin(kEntries), std::end(kEntries), [&](const Entry& e) { return name == e.class_name; });
  return found == std::end(kEntries) ? name : found->name;
}

KeyedOptimizerPtr make_dense_optimizer(const DenseOptimizerSpec& spec, ParameterList parameters) {
  for (const Entry& entry : kEntries) {
    if (dense_optimizer_name(spec.name) == entry.name) {
      Reader reader(spec);
      return entry.make(reader, std::move(parameters));
    }
  }
  const std::vector<std::string> known = dense_optimizer_names();
  fail(Code::kNotFound, sdk::unknown_name("dense optimizer", spec.name, known), ", and there are ", sdk::joined(known));
}

}  // namespace tessera
