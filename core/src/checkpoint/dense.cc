#include "checkpoint/dense.h"

#include <algorithm>
#include <map>
#include <set>

namespace tessera::checkpoint {
namespace {

using States = std::vector<std::pair<std::string, OptimizerState>>;

States copy_of(States states) {
  for (auto& [key, state] : states) {
    for (auto& [name, value] : state) value = value.clone();
  }
  return states;
}

// Returns "lr, momentum" for {"lr = 0.1", "momentum = 0"}. Groups with the same names count once.
std::string names_of(const std::vector<std::vector<std::string>>& settings) {
  std::vector<std::string> groups;
  for (const auto& group : settings) {
    std::string names;
    for (const std::string& setting : group)
      names += str_cat(names.empty() ? "" : ", ", setting.substr(0, setting.find(" = ")));
    if (!names.empty() && std::find(groups.begin(), groups.end(), names) == groups.end()) groups.push_back(names);
  }
  std::string out;
  for (const std::string& names : groups) out += (out.empty() ? "" : "; ") + names;
  return out.empty() ? "none" : out;
}

}  // namespace

ParameterList dense_tensors(const DistributedModelParallel& model) {
  ParameterList all = in_backward_optimizer_filter(model.parameters(), false);
  all.insert(all.end(), model.buffers().begin(), model.buffers().end());
  return all;
}

std::vector<std::vector<std::string>> settings_of(const KeyedOptimizer& optimizer) {
  std::vector<std::vector<std::string>> out;
  for (const ParamGroup& group : optimizer.param_groups()) {
    out.emplace_back();
    for (const auto& [name, value] : group.options) out.back().push_back(str_cat(name, " = ", to_string(value)));
  }
  return out;
}

void check_settings(const std::vector<std::vector<std::string>>& stored, const KeyedOptimizer& optimizer) {
  const std::string theirs = names_of(stored), ours = names_of(settings_of(optimizer));
  if (theirs == ours) return;
  fail(Code::kInvalidArgument, "the dense parameters were trained with other settings of the optimizer: ", theirs,
       ", but this job has ", ours);
}

// Fails if weights were averaged in the job that saved the states, and are not in this one.
void check_averages(const States& states, const KeyedOptimizer& optimizer) {
  const auto averages = [](const auto& entry) {
    return std::any_of(entry.second.begin(), entry.second.end(),
                       [](const auto& s) { return s.first == kAveragesState; });
  };
  if (optimizer.class_name() == kAveragingOptimizer || std::none_of(states.begin(), states.end(), averages)) return;
  fail(Code::kInvalidArgument, "the checkpoint has averages of the layers' weights, which job.ema made, but this job ",
       "makes none: set job.ema as the job that saved it, or begin a new run with --start");
}

States read_dense_states(const TensorFiles& files, const std::vector<TableEntry>& tables) {
  std::set<std::string> of_tables;
  for (const TableEntry& t : tables) {
    for (size_t k = 0; k < t.states.size(); ++k) of_tables.insert(t.state_name(k));
    of_tables.insert(t.extra_name());
    for (size_t s = 0; s < t.table_extras.size(); ++s) of_tables.insert(t.table_extra_name(s));
  }
  std::map<std::string, OptimizerState> out;
  for (const auto& [name, place] : files.tensors()) {
    if (of_tables.contains(name)) continue;
    const size_t slash = name.rfind('/');
    if (slash == std::string::npos)
      fail(Code::kDataLoss, place.file->file().path(), " has a tensor \"", name,
           "\", which is not a state of a parameter");
    out[name.substr(0, slash)].emplace_back(name.substr(slash + 1), files.read(name));
  }
  return {out.begin(), out.end()};
}

StateChange::StateChange(KeyedOptimizer& optimizer) : optimizer_(optimizer), before_(copy_of(optimizer.state())) {}

StateChange::~StateChange() {
  if (!undo_) return;
  try {
    set(before_);
  } catch (const std::exception&) {
    // The state from before fits. An optimizer that cannot drop the state of its first step keeps that.
  }
}

void StateChange::apply(const States& states) {
  undo_ = true;
  check_averages(states, optimizer_);
  set(states);
}

void StateChange::set(const States& states) {
  std::set<std::string> left;  // keys that have state now, or may have some
  for (const std::string& key : optimizer_.state_keys()) left.insert(key);
  for (const auto& [key, state] : states) {
    optimizer_.set_state(key, state);
    left.erase(key);
  }
  for (const std::string& key : left) optimizer_.set_state(key, {});
  // Set it again as a whole. This tells wrappers that follow the state, such as warmup, that it was replaced.
  optimizer_.load_state_dict({copy_of(optimizer_.state()), std::nullopt});
}

}  // namespace tessera::checkpoint
