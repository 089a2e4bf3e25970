#include "train/dense_spec.h"

#include <algorithm>

#include "config/json.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

// `name` is dense_optimizer_name()'s; `key` names the weight decay.
void require_decay(const std::string& name, double weight_decay, const char* key) {
  if (name == "adamw" && weight_decay == 0)
    fail(Code::kInvalidArgument, "adamw differs from adam by its weight decay, but ", key,
         " is 0: set it, to 0.01 for ", "example, or choose adam");
}

}  // namespace

DenseOptimizerSpec dense_spec(const DenseOptimizerConfig& config) {
  // The config has one section for all optimizers. A key that is set but not read would have no effect, so refuse it.
  const DenseOptimizerConfig unset;
  const std::string name = dense_optimizer_name(config.name);
  const std::vector<std::string> names = dense_optimizer_names();
  const bool known = std::find(names.begin(), names.end(), name) != names.end();
  const bool sgd = name == "sgd", adam = name == "adam" || name == "adamw", rmsprop = name == "rmsprop",
             adadelta = name == "adadelta";
  const char* others = sgd        ? "momentum"
                       : adam     ? "eps, beta1 and beta2"
                       : rmsprop  ? "eps and alpha"
                       : adadelta ? "eps and rho"
                                  : "eps";
  require_decay(name, config.weight_decay, "dense_optimizer.weight_decay");
  json all = {{"learning_rate", config.learning_rate}, {"weight_decay", config.weight_decay}};
  const auto take = [&](const char* key, double value, double otherwise, bool read) {
    if (read) all[key] = value;
    if (!read && known && value != otherwise)
      fail(Code::kInvalidArgument, "dense_optimizer.", key, " = ", value, " has no effect: ", config.name,
           " takes learning_rate, weight_decay and ", others);
  };
  take("momentum", config.momentum, unset.momentum, sgd);
  take("eps", config.eps, unset.eps, !sgd);
  take("alpha", config.alpha, unset.alpha, rmsprop);
  take("rho", config.rho, unset.rho, adadelta);
  take("beta1", config.beta1, unset.beta1, adam);
  take("beta2", config.beta2, unset.beta2, adam);
  return {config.name, all.dump()};
}

std::optional<DenseOptimizerSpec> dense_spec(const LayerConfig& layer, const DenseOptimizerConfig& common) {
  const json own = json::parse(layer.optimizer.json);
  if (own.empty()) return std::nullopt;
  if (!layer.trainable)
    fail(Code::kInvalidArgument, "layer \"", layer.name, "\" has an optimizer and trainable = false: leave one out");
  if (own.contains("name") && !own["name"].is_string())
    fail(Code::kInvalidArgument, "layer \"", layer.name, "\": the optimizer's name must be a string");
  const std::string name = dense_optimizer_name(own.value("name", common.name));
  json all = {{"learning_rate", common.learning_rate}, {"weight_decay", common.weight_decay}};
  if (name == dense_optimizer_name(common.name)) all = json::parse(dense_spec(common).options);
  for (const auto& [key, value] : own.items()) {
    if (key != "name") all[key] = value;
  }
  DenseOptimizerSpec out{name, all.dump()};
  try {
    (void)make_dense_optimizer(out, {});
    require_decay(name, all.at("weight_decay").get<double>(), "its weight_decay");
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("layer \"", layer.name, "\": ", e.what()));
  }
  return out;
}

}  // namespace tessera
