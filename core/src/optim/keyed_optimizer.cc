#include <algorithm>
#include <type_traits>

#include "sparse/text.h"
#include "tessera/device.h"
#include "tessera/optim.h"

namespace tessera {
namespace {

std::string repr(double value) {
  std::string out;
  sparse::append_repr(out, value);
  return out;
}

std::vector<std::string> sorted(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return names;
}

bool is_number(const OptionValue& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
}

double as_number(const OptionValue& value) {
  const int64_t* integer = std::get_if<int64_t>(&value);
  return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
}

template <class List>
auto find_named(List& list, std::string_view name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.first == name; });
}

void load_group(KeyedOptimizer& optimizer, size_t index, const ParamGroup& have, const ParamGroup& given) {
  for (const auto& [name, value] : have.options) {
    const auto other = find_named(given.options, name);
    if (other == given.options.end() || other->second == value) continue;
    if (is_number(value) && is_number(other->second)) {
      optimizer.set_option(index, name, as_number(other->second));
    } else {
      fail(Code::kInvalidArgument, "option ", name, " is ", to_string(value), " here, but ", to_string(other->second),
           " in the state dict");
    }
  }
}

void load_groups(KeyedOptimizer& optimizer, const std::vector<ParamGroup>& given) {
  const std::vector<ParamGroup> have = optimizer.param_groups();
  if (have.size() != given.size()) {
    fail(Code::kInvalidArgument, "there are ", have.size(), " parameter groups here, ", given.size(),
         " in the state dict");
  }
  for (size_t i = 0; i < have.size(); ++i) {
    const auto same = std::find_if(given.begin(), given.end(),
                                   [&](const ParamGroup& g) { return sorted(g.params) == sorted(have[i].params); });
    if (same == given.end()) fail(Code::kInvalidArgument, "no group of the state dict has the parameters of group ", i);
    load_group(optimizer, i, have[i], *same);
  }
}

}  // namespace

ParameterList in_backward_optimizer_filter(const ParameterList& parameters, bool include) {
  ParameterList out;
  for (const ParameterPtr& p : parameters) {
    if (p->in_backward == include) out.push_back(p);
  }
  return out;
}

std::string to_string(const OptionValue& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::monostate>) return "None";
        if constexpr (std::is_same_v<T, bool>) return v ? "True" : "False";
        if constexpr (std::is_same_v<T, int64_t>) return std::to_string(v);
        if constexpr (std::is_same_v<T, double>) return repr(v);
        if constexpr (std::is_same_v<T, std::string>) return v;
        if constexpr (std::is_same_v<T, std::pair<double, double>>) {
          return "(" + repr(v.first) + ", " + repr(v.second) + ")";
        }
      },
      value);
}

double ParamGroup::number(std::string_view option) const {
  const auto found = find_named(options, option);
  if (found != options.end() && is_number(found->second)) return as_number(found->second);
  std::string known;
  for (const auto& [name, value] : options) {
    if (is_number(value)) known += str_cat(known.empty() ? "" : ", ", name);
  }
  fail(Code::kNotFound, "there is no number \"", option, "\" among the options: ", known);
}

void KeyedOptimizer::zero_grad() {
  for (const Item& item : params()) item.parameter->grad = Tensor();
}

void KeyedOptimizer::set_learning_rate(double value) {
  for (size_t g = 0; g < num_groups(); ++g) set_option(g, "lr", value);
}

std::vector<std::string> KeyedOptimizer::param_keys() const {
  std::vector<std::string> out;
  for (const Item& item : params()) out.push_back(item.key);
  return out;
}

std::vector<std::string> KeyedOptimizer::state_keys() const {
  std::vector<std::string> out;
  for (const auto& entry : state()) out.push_back(entry.first);
  return out;
}

OptimizerStateDict KeyedOptimizer::state_dict() const {
  OptimizerStateDict out{state(), std::nullopt};
  if (save_param_groups_) out.param_groups = param_groups();
  return out;
}

void KeyedOptimizer::load_state_dict(const OptimizerStateDict& dict) {
  const auto have = state();
  if (have.size() != dict.state.size()) {
    fail(Code::kInvalidArgument, have.size(), " parameters have state here, ", dict.state.size(),
         " in the state dict; call init_state() before loading");
  }
  for (const auto& [key, state] : have) {
    const auto given = find_named(dict.state, key);
    if (given == dict.state.end()) {
      fail(Code::kInvalidArgument, "the state dict has nothing for parameter \"", key, "\"");
    }
    if (given->second.size() != state.size()) {
      fail(Code::kInvalidArgument, "parameter \"", key, "\" has ", state.size(), " states, ", given->second.size(),
           " in the state dict");
    }
    for (const auto& [name, value] : state) {
      const auto tensor = find_named(given->second, name);
      if (tensor == given->second.end()) {
        fail(Code::kInvalidArgument, "the state dict has no \"", name, "\" for parameter \"", key, "\"");
      }
      if (tensor->second.shape() != value.shape() || tensor->second.dtype() != value.dtype()) {
        fail(Code::kInvalidArgument, "state \"", name, "\" of parameter \"", key,
             "\" has another shape or type in the state dict");
      }
    }
  }
  for (const auto& [key, state] : dict.state) set_state(key, state);
  if (dict.param_groups) load_groups(*this, *dict.param_groups);
  after_load();
}

void KeyedOptimizer::init_state() {
  for (const Item& item : params()) {
    if (!item.parameter->in_backward) item.parameter->grad = zeros_like(item.parameter->value);
  }
  step();
}

void KeyedOptimizer::add_param_group(const ParamGroup&) {
  fail(Code::kUnimplemented,
       "an optimizer's parameters are fixed: make a second one and combine them "
       "(CombinedOptimizer)");
}

std::string KeyedOptimizer::str() const {
  std::string out = class_name() + " (";
  size_t index = 0;
  for (const ParamGroup& group : param_groups()) {
    out += str_cat("\nParameter Group ", index++, "\n");
    for (const auto& [name, value] : group.options) out += str_cat("    ", name, ": ", to_string(value), "\n");
  }
  return out + ")";
}

}  // namespace tessera
