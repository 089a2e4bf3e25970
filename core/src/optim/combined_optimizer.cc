#include <set>
#include <utility>

#include "tessera/optim.h"

namespace tessera {
namespace {

std::string combined(const std::string& name, const std::string& key) {
  if (name.empty()) return key;
  return key.empty() ? name : name + "." + key;
}

}  // namespace

CombinedOptimizer::CombinedOptimizer(std::vector<Member> members) : members_(std::move(members)) {
  std::set<std::string> seen;
  for (const std::string& key : param_keys()) {
    if (!seen.insert(key).second) {
      fail(Code::kInvalidArgument, "parameter \"", key, "\" is in two of the combined optimizers: name the optimizers");
    }
  }
}

void CombinedOptimizer::step() {
  for (const Member& m : members_) m.optimizer->step();
}

std::vector<KeyedOptimizer::Item> CombinedOptimizer::params() const {
  std::vector<Item> out;
  for (const Member& m : members_) {
    for (Item& item : m.optimizer->params()) out.push_back({combined(m.name, item.key), std::move(item.parameter)});
  }
  return out;
}

std::vector<std::pair<std::string, OptimizerState>> CombinedOptimizer::state() const {
  std::vector<std::pair<std::string, OptimizerState>> out;
  for (const Member& m : members_) {
    for (auto& [key, state] : m.optimizer->state()) out.emplace_back(combined(m.name, key), std::move(state));
  }
  return out;
}

void CombinedOptimizer::set_state(std::string_view key, const OptimizerState& state) {
  for (const Member& m : members_) {
    // Keys with state are searched as well, because a wrapper may keep state under its own key.
    for (const std::vector<std::string>& keys : {m.optimizer->param_keys(), m.optimizer->state_keys()}) {
      for (const std::string& inner : keys) {
        if (combined(m.name, inner) == key) return m.optimizer->set_state(inner, state);
      }
    }
  }
  fail(Code::kInvalidArgument, "there is state for \"", key, "\", which is not a parameter of these optimizers");
}

std::vector<ParamGroup> CombinedOptimizer::param_groups() const {
  std::vector<ParamGroup> out;
  for (const Member& m : members_) {
    for (ParamGroup& group : m.optimizer->param_groups()) {
      for (std::string& key : group.params) key = combined(m.name, key);
      out.push_back(std::move(group));
    }
  }
  return out;
}

size_t CombinedOptimizer::num_groups() const {
  size_t n = 0;
  for (const Member& m : members_) n += m.optimizer->num_groups();
  return n;
}

void CombinedOptimizer::set_option(size_t group, std::string_view option, double value) {
  for (const Member& m : members_) {
    const size_t groups = m.optimizer->num_groups();
    if (group < groups) return m.optimizer->set_option(group, option, value);
    group -= groups;
  }
  TESSERA_CHECK(false, "there are ", num_groups(), " groups");
}

void CombinedOptimizer::init_state() {
  for (const Member& m : members_) m.optimizer->init_state();
}

std::string CombinedOptimizer::str() const {
  std::string out;
  for (const Member& m : members_) out += str_cat(out.empty() ? "" : ",", m.name, ": ", m.optimizer->str());
  return out;
}

void CombinedOptimizer::after_load() {
  for (const Member& m : members_) loaded(*m.optimizer);
}

}  // namespace tessera
