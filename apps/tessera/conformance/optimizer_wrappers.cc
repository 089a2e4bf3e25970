#include "conformance/optimizer_wrappers.h"

#include <algorithm>
#include <limits>

namespace tessera::cli {

ParameterList parameters_from(const json& params) {
  ParameterList out;
  for (const json& p : params) {
    out.push_back(std::make_shared<Parameter>());
    out.back()->name = p.at("key").get<std::string>();
    out.back()->value = tensor_from(p.at("value"));
  }
  return out;
}

DenseOptimizerSpec dense_spec_from(const json& given) {
  const json& options = field_or_null(given, "optimizer_kwargs");
  return {given.at("optimizer").get<std::string>(), options.is_null() ? "{}" : options.dump()};
}

WarmupStage warmup_stage_from(const json& stage) {
  WarmupStage out;
  out.policy = warmup_policy_from(stage.at("policy").get<std::string>());
  out.max_iters = stage.value("max_iters", out.max_iters);
  out.value = stage.value("value", out.value);
  out.lr_scale = stage.value("lr_scale", out.lr_scale);
  out.decay_iters = stage.value("decay_iters", out.decay_iters);
  out.sgdr_period = stage.value("sgdr_period", out.sgdr_period);
  if (const json& start = field_or_null(stage, "start_interpolating_iters"); !start.is_null()) {
    out.start_interpolating_iters = start.get<int64_t>();
  }
  if (const json& end = field_or_null(stage, "end_value"); !end.is_null()) out.end_value = end.get<double>();
  return out;
}

void check_optimizer_state(CaseContext& c, const std::string& field, const json& want,
                           const std::vector<std::pair<std::string, OptimizerState>>& state) {
  std::vector<std::string> keys, wanted;
  for (const auto& entry : state) keys.push_back(entry.first);
  for (const auto& item : want.items()) wanted.push_back(item.key());
  std::sort(keys.begin(), keys.end());
  std::sort(wanted.begin(), wanted.end());
  c.check.equal(field + " keys", wanted, keys);
  for (const auto& [key, entries] : state) {
    if (!want.contains(key)) continue;
    c.check.number(str_cat(field, ".", key, " entries"), static_cast<double>(want[key].size()),
                   static_cast<double>(entries.size()));
    for (const auto& [name, tensor] : entries) {
      if (!want[key].contains(name)) {
        c.check.fail(str_cat(field, ".", key), str_cat("state \"", name, "\" is not expected"));
        continue;
      }
      c.check.tensor(str_cat(field, ".", key, ".", name), want[key][name], tensor);
    }
  }
}

namespace {

void set_gradients(const KeyedOptimizer& optimizer, const json& grads) {
  for (const KeyedOptimizer::Item& item : optimizer.params()) {
    item.parameter->grad = tensor_from(field_or_null(grads, item.key.c_str()));
  }
}

void check_params(CaseContext& c, const std::string& field, const json& want, const KeyedOptimizer& optimizer) {
  for (const KeyedOptimizer::Item& item : optimizer.params()) {
    if (want.contains(item.key)) c.check.tensor(str_cat(field, ".", item.key), want[item.key], item.parameter->value);
  }
}

void check_step(CaseContext& c, const std::string& field, const json& want, const KeyedOptimizer& optimizer) {
  if (want.contains("params")) check_params(c, field + ".params", want["params"], optimizer);
  if (want.contains("state")) check_optimizer_state(c, field + ".state", want["state"], optimizer.state());
}

std::vector<std::string> top_keys(const OptimizerStateDict& dict) {
  return dict.param_groups ? std::vector<std::string>{"state", "param_groups"} : std::vector<std::string>{"state"};
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

json params_of_groups(const KeyedOptimizer& optimizer) {
  json out = json::array();
  for (const ParamGroup& group : optimizer.param_groups()) out.push_back(sorted(group.params));
  return out;
}

OptimizerStateDict copy_of(OptimizerStateDict dict) {
  for (auto& [key, state] : dict.state) {
    for (auto& [name, tensor] : state) tensor = tensor.clone();
  }
  return dict;
}

void keyed_optimizer_op(CaseContext& c) {
  const auto optimizer = make_dense_optimizer(dense_spec_from(c.given), parameters_from(c.given.at("params")));
  const json& steps = c.expect.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    set_gradients(*optimizer, c.given.at("grads_per_step").at(i));
    optimizer->step();
    check_step(c, str_cat("step ", i), steps[i], *optimizer);
  }
  if (c.expect.contains("state_dict_top_keys")) {
    c.check.equal("state_dict_top_keys", c.expect["state_dict_top_keys"], top_keys(optimizer->state_dict()));
  }
  optimizer->save_param_groups(true);
  if (c.expect.contains("state_dict_top_keys_with_param_groups")) {
    c.check.equal("state_dict_top_keys_with_param_groups", c.expect["state_dict_top_keys_with_param_groups"],
                  top_keys(optimizer->state_dict()));
  }
  if (c.expect.contains("param_group_params")) {
    c.check.equal("param_group_params", c.expect["param_group_params"], params_of_groups(*optimizer));
  }
}

void keyed_optimizer_resume_op(CaseContext& c) {
  const DenseOptimizerSpec spec = dense_spec_from(c.given);
  const ParameterList parameters = parameters_from(c.given.at("params"));
  const auto first = make_dense_optimizer(spec, parameters);
  const size_t save_after = c.given.at("save_after").get<size_t>();
  for (size_t i = 0; i < save_after; ++i) {
    set_gradients(*first, c.given.at("grads_per_step").at(i));
    first->step();
  }
  check_step(c, "at_save", c.expect.at("at_save"), *first);
  const OptimizerStateDict saved = copy_of(first->state_dict());

  const ParameterList copies = parameters_from(c.given["params"]);
  const auto second = make_dense_optimizer(spec, copies);
  c.check.number("state_entries_before_init_state", c.expect.at("state_entries_before_init_state").get<double>(),
                 static_cast<double>(second->state().size()));
  second->init_state();
  for (size_t p = 0; p < copies.size(); ++p) {
    std::copy_n(parameters[p]->value.data<float>(), copies[p]->value.numel(), copies[p]->value.data<float>());
  }
  second->load_state_dict(saved);
  const json& steps = c.expect.at("steps_after_load");
  for (size_t i = 0; i < steps.size(); ++i) {
    set_gradients(*second, c.given["grads_per_step"].at(save_after + i));
    second->step();
    check_step(c, str_cat("step ", i, " after load"), steps[i], *second);
  }
}

void init_state_op(CaseContext& c) {
  const auto optimizer = make_dense_optimizer(dense_spec_from(c.given), parameters_from(c.given.at("params")));
  optimizer->init_state();
  check_step(c, "init_state", c.expect, *optimizer);
}

void combined_optimizer_op(CaseContext& c) {
  std::vector<CombinedOptimizer::Member> members;
  for (const json& o : c.given.at("optimizers")) {
    const json& name = field_or_null(o, "name");
    members.push_back({name.is_null() ? "" : name.get<std::string>(),
                       make_dense_optimizer(dense_spec_from(o), parameters_from(o.at("params")))});
  }
  CombinedOptimizer optimizer(std::move(members));
  const json& steps = c.expect.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    set_gradients(optimizer, c.given.at("grads_per_step").at(i));
    optimizer.step();
    check_step(c, str_cat("step ", i), steps[i], optimizer);
  }
  if (c.expect.contains("param_keys")) c.check.equal("param_keys", c.expect["param_keys"], optimizer.param_keys());
  if (c.expect.contains("state_keys")) c.check.equal("state_keys", c.expect["state_keys"], optimizer.state_keys());
  if (c.expect.contains("param_group_params")) {
    c.check.equal("param_group_params", c.expect["param_group_params"], params_of_groups(optimizer));
  }
  const std::vector<ParamGroup> groups = optimizer.param_groups();
  for (size_t g = 0; g < field_or_null(c.expect, "lrs").size(); ++g) {
    c.check.number(str_cat("lrs ", g), c.expect["lrs"][g].get<double>(), groups.at(g).number("lr"));
  }
}

void warmup_multiplier_op(CaseContext& c) {
  const json& stages = c.given.at("stages");
  const json& iterations = c.given.at("iterations");
  const auto check = [&](const std::string& field, const WarmupStage& stage, const json& want) {
    for (size_t i = 0; i < iterations.size(); ++i) {
      c.check.number(str_cat(field, " at ", iterations[i].dump()), want.at(i).get<double>(),
                     warmup_multiplier(stage, iterations[i].get<int64_t>()));
    }
  };
  for (size_t s = 0; s < stages.size(); ++s) {
    check(str_cat("stage ", s), warmup_stage_from(stages[s]), c.expect.at("multipliers").at(s));
  }
  if (c.expect.contains("last_stage")) check("last stage", warmup_stages({}).back(), c.expect["last_stage"]);
}

WarmupOptimizer::Options warmup_options(const json& given) {
  WarmupOptimizer::Options out;
  for (const json& stage : given.at("stages")) out.stages.push_back(warmup_stage_from(stage));
  out.lr = given.value("lr", out.lr);
  out.lr_param = given.value("lr_param", out.lr_param);
  return out;
}

void warmup_op(CaseContext& c) {
  const auto inner = make_dense_optimizer(dense_spec_from(c.given), parameters_from(c.given.at("params")));
  const WarmupOptimizer::Options options = warmup_options(c.given);
  WarmupOptimizer optimizer(inner, options);
  const auto rate = [&] { return inner->param_groups().at(0).number(options.lr_param); };
  if (c.expect.contains("lr_after_construction")) {
    c.check.number("lr_after_construction", c.expect["lr_after_construction"].get<double>(), rate());
  }
  const json& steps = c.expect.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string field = str_cat("step ", i);
    const double used = rate();
    set_gradients(optimizer, c.given.at("grads_per_step").at(i));
    optimizer.step();
    check_step(c, field, steps[i], optimizer);
    if (steps[i].contains("lr_used_by_this_step")) {
      c.check.number(field + ".lr_used_by_this_step", steps[i]["lr_used_by_this_step"].get<double>(), used);
    }
    if (steps[i].contains("lr_after")) {
      c.check.number(field + ".lr_after", steps[i]["lr_after"].get<double>(), rate());
    }
    if (steps[i].contains("warmup_state")) {
      c.check.tensor(field + ".warmup_state", steps[i]["warmup_state"], optimizer.state().back().second.at(0).second);
    }
  }
  if (c.expect.contains("param_keys")) c.check.equal("param_keys", c.expect["param_keys"], optimizer.param_keys());
  if (c.expect.contains("state_keys")) c.check.equal("state_keys", c.expect["state_keys"], optimizer.state_keys());
}

std::shared_ptr<GradientClippingOptimizer> clipping_from(const json& given, const KeyedOptimizerPtr& inner) {
  GradientClippingOptimizer::Options options;
  options.clipping = gradient_clipping_from(given.at("clipping").get<std::string>());
  options.max_gradient = given.value("max_gradient", options.max_gradient);
  options.track_grad_norm = given.value("track_grad_norm", false);
  if (const json& p = field_or_null(given, "norm_type"); p.is_number()) {
    options.norm_type = p.get<double>();
  } else if (p.is_string()) {
    options.norm_type = std::numeric_limits<double>::infinity();
  }
  return std::make_shared<GradientClippingOptimizer>(inner, options);
}

void clipping_op(CaseContext& c) {
  const auto optimizer =
      clipping_from(c.given, make_dense_optimizer(dense_spec_from(c.given), parameters_from(c.given.at("params"))));
  const json& steps = c.expect.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::string field = str_cat("step ", i);
    set_gradients(*optimizer, c.given.at("grads_per_step").at(i));
    optimizer->step();
    check_step(c, field, steps[i], *optimizer);
    for (const KeyedOptimizer::Item& item : optimizer->params()) {
      const json& want = field_or_null(field_or_null(steps[i], "clipped_grads"), item.key.c_str());
      if (steps[i].contains("clipped_grads")) {
        c.check.tensor(str_cat(field, ".clipped_grads.", item.key), want, item.parameter->grad);
      }
    }
    if (!steps[i].contains("last_total_grad_norm")) continue;
    const json& norm = steps[i]["last_total_grad_norm"];
    if (norm.is_null() != !optimizer->last_total_grad_norm()) {
      c.check.fail(field + ".last_total_grad_norm", norm.is_null() ? "want none, got one" : "want one, got none");
    } else if (!norm.is_null()) {
      c.check.number(field + ".last_total_grad_norm", norm.get<double>(), *optimizer->last_total_grad_norm());
    }
  }
}

void warmup_over_clipping_op(CaseContext& c) {
  const auto inner = make_dense_optimizer(dense_spec_from(c.given), parameters_from(c.given.at("params")));
  WarmupOptimizer optimizer(clipping_from(c.given, inner), warmup_options(c.given));
  const json& steps = c.expect.at("steps");
  for (size_t i = 0; i < steps.size(); ++i) {
    set_gradients(optimizer, c.given.at("grads_per_step").at(i));
    optimizer.step();
    check_step(c, str_cat("step ", i), steps[i], optimizer);
    c.check.number(str_cat("step ", i, ".lr_after"), steps[i].at("lr_after").get<double>(),
                   inner->param_groups().at(0).number("lr"));
  }
}

}  // namespace

OpTable optimizer_wrapper_ops() {
  OpTable ops = in_backward_ops();
  ops.merge(OpTable{{"keyed_optimizer", keyed_optimizer_op},
                    {"keyed_optimizer_resume", keyed_optimizer_resume_op},
                    {"init_state", init_state_op},
                    {"combined_optimizer", combined_optimizer_op},
                    {"warmup_multiplier", warmup_multiplier_op},
                    {"warmup", warmup_op},
                    {"clipping", clipping_op},
                    {"warmup_over_clipping", warmup_over_clipping_op},
                    {"error", optimizer_error_op}});
  return ops;
}

}  // namespace tessera::cli
