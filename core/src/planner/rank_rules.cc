#include "planner/rank_rules.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "modules/kernel_config.h"

namespace tessera {

namespace {

using Groups = std::map<std::string, std::vector<size_t>>;  // the tables of each group, by its name

std::string names_of(const std::vector<size_t>& group, const std::vector<PlannedTable>& tables) {
  std::vector<std::string> names;
  for (const size_t t : group) names.push_back(tables[t].table->name);
  return list_text(names);
}

// The constraint's `ranks` without its `forbidden_ranks`; without `ranks`, all ranks that are not forbidden.
std::vector<bool> allowed_ranks(const PlannedTable& t, int world_size) {
  const ParameterConstraints& c = t.constraints;
  std::vector<bool> allowed(static_cast<size_t>(world_size), c.ranks.empty());
  for (const int r : c.ranks) allowed[static_cast<size_t>(r)] = true;
  for (const int r : c.forbidden_ranks) allowed[static_cast<size_t>(r)] = false;
  if (std::find(allowed.begin(), allowed.end(), true) == allowed.end()) {
    bad_input(str_cat("constraints of table ", t.table->name, ": ",
                      c.ranks.empty() ? str_cat("all ", world_size, " ranks are forbidden")
                                      : std::string("every rank that it is pinned to is also forbidden"),
                      "; allow one"));
  }
  return allowed;
}

// Gives each table of a group the ranks that all of them may use.
void share_ranks(const std::string& name, const std::vector<size_t>& group, const std::vector<PlannedTable>& tables,
                 RankRules& rules) {
  std::vector<bool> common = rules.tables[group.front()].allowed;
  for (const size_t t : group) {
    for (size_t r = 0; r < common.size(); ++r) common[r] = common[r] && rules.tables[t].allowed[r];
  }
  if (std::find(common.begin(), common.end(), true) == common.end()) {
    bad_input(str_cat("tables ", names_of(group, tables), " must be kept together (", name,
                      "), but no rank is allowed for all of them; pin them to a common rank"));
  }
  for (const size_t t : group) rules.tables[t].allowed = common;
}

// Checks if every table of a group can have a rank of its own, by a matching of tables with ranks.
class Matching {
 public:
  Matching(const std::vector<size_t>& group, const RankRules& rules)
      : group_(group), rules_(rules), owner_(rules.tables.front().allowed.size(), kNobody) {}
  bool complete() {
    return std::all_of(group_.begin(), group_.end(), [&](size_t t) {
      visited_.assign(owner_.size(), false);
      return find_rank(t);
    });
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;
  bool find_rank(size_t table) {
    for (size_t r = 0; r < owner_.size(); ++r) {
      if (visited_[r] || !rules_.tables[table].allowed[r]) continue;
      visited_[r] = true;
      if (owner_[r] != kNobody && !find_rank(owner_[r])) continue;
      owner_[r] = table;
      return true;
    }
    return false;
  }
  const std::vector<size_t>& group_;
  const RankRules& rules_;
  std::vector<size_t> owner_;  // the table matched with each rank
  std::vector<bool> visited_;
};

void keep_apart(const std::string& name, const std::vector<size_t>& group, const std::vector<PlannedTable>& tables,
                int number, RankRules& rules) {
  for (const std::vector<size_t>& together : rules.together) {
    std::vector<size_t> both;
    for (const size_t t : together) {
      if (std::find(group.begin(), group.end(), t) != group.end()) both.push_back(t);
    }
    if (both.size() > 1) {
      bad_input(str_cat("tables ", names_of(both, tables), " must be kept apart (", name, ") and together (",
                        tables[both.front()].constraints.keep_together, "); drop one of the two"));
    }
  }
  if (!Matching(group, rules).complete()) {
    bad_input(str_cat("tables ", names_of(group, tables), " must be kept apart (", name,
                      "), but they may use too few ranks for each to have its own; add ranks, or allow more"));
  }
  for (const size_t t : group) rules.tables[t].apart.push_back(number);
}

// Gives each table of `together` the apart groups of all of them, because they share their ranks.
void share_groups(const std::vector<size_t>& together, RankRules& rules) {
  std::vector<int> all;
  for (const size_t t : together) {
    all.insert(all.end(), rules.tables[t].apart.begin(), rules.tables[t].apart.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const size_t t : together) rules.tables[t].apart = all;
}

// Compares a plan with constraints, table by table.
class PlanReview {
 public:
  std::string lines() const { return lines_; }

  void add(const std::string& table, int64_t cols, const ParameterConstraints& c, const ParameterSharding& sharding) {
    const auto say = [&](const auto&... parts) { lines_ += str_cat("table ", table, ": ", parts..., '\n'); };
    const auto has = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    const auto check_list = [&](const char* what, const std::vector<std::string>& allowed, const std::string& value) {
      if (!allowed.empty() && !has(allowed, value))
        say("the plan has ", what, " ", value, ", allowed is ", list_text(allowed));
    };
    check_list("sharding type", c.sharding_types, sharding.sharding_type);
    check_list("compute kernel", compute_kernel_choices(c.compute_kernels), sharding.compute_kernel);
    if (c.max_shards > 0 && std::ssize(sharding.shards) > c.max_shards)
      say("the plan has ", sharding.shards.size(), " shards, max_shards is ", c.max_shards);
    for (const ShardMetadata& s : sharding.shards) {
      if (has(c.forbidden_ranks, s.rank) || (!c.ranks.empty() && !has(c.ranks, s.rank)))
        say("the plan has a shard on rank ", s.rank, ", which is not allowed");
      if (s.cols < std::min(c.min_partition, cols))
        say("the plan has a shard of ", s.cols, " columns, min_partition is ", c.min_partition);
    }
    const std::vector<int> ranks = sharding.ranks();
    if (!c.keep_together.empty()) {
      const auto& [first, theirs] = *together_.try_emplace(c.keep_together, std::pair(table, ranks)).first;
      if (theirs.second != ranks)
        say("the plan has it on other ranks than ", theirs.first, " (keep_together ", first, ")");
    }
    for (const std::string& group : c.keep_apart) {
      for (const int rank : ranks) {
        const auto& owner = apart_.try_emplace({group, rank}, table).first->second;
        if (owner == table) continue;
        say("the plan has it on rank ", rank, ", as ", owner, " (keep_apart ", group, ")");
        break;
      }
    }
  }

 private:
  std::map<std::string, std::pair<std::string, std::vector<int>>> together_;  // by group: its first table, and ranks
  std::map<std::pair<std::string, int>, std::string> apart_;                  // by group and rank: the table there
  std::string lines_;
};

}  // namespace

std::string broken_constraints(const ShardingPlan& plan, const std::vector<PlannerModule>& modules,
                               const std::map<std::string, ParameterConstraints>& constraints) {
  PlanReview review;
  for (const PlannerModule& m : modules) {
    for (const EmbeddingBagConfig& t : m.tables) {
      const auto c = constraints.find(t.name);
      if (c != constraints.end()) review.add(t.name, t.embedding_dim, c->second, plan.at(m.path).at(t.name));
    }
  }
  return review.lines();
}

void bad_input(const std::string& text) { throw PlannerError(PlannerError::Kind::kBadInput, text); }

std::string list_text(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  const size_t shown = names.size() <= kMost ? names.size() : kMost - 1;
  std::string text;
  for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return shown == names.size() ? text : str_cat(text, " and ", names.size() - shown, " more");
}

void check_constraints(const ParameterConstraints& c, const std::string& table, int world_size) {
  const size_t inputs = c.pooling_factors.size();
  if ((!c.num_poolings.empty() && c.num_poolings.size() != inputs) ||
      (!c.batch_sizes.empty() && c.batch_sizes.size() != inputs)) {
    bad_input(str_cat("constraints of table ", table, ": pooling_factors, num_poolings and batch_sizes have ", inputs,
                      ", ", c.num_poolings.size(), " and ", c.batch_sizes.size(),
                      " entries; give one of each per input"));
  }
  for (const auto* list : {&c.pooling_factors, &c.num_poolings, &c.batch_sizes}) {
    for (const double x : *list) {
      if (!std::isfinite(x) || x < 0) bad_input(str_cat("constraints of table ", table, ": ", x, " is not a count"));
    }
  }
  if (c.max_shards < 0) bad_input(str_cat("constraints of table ", table, ": max_shards is negative"));
  for (const auto* list : {&c.ranks, &c.forbidden_ranks}) {
    for (const int r : *list) {
      if (r >= 0 && r < world_size) continue;
      bad_input(str_cat("constraints of table ", table, ": rank ", r, " is outside the world of ", world_size));
    }
  }
  if (c.min_partition < 0) bad_input(str_cat("constraints of table ", table, ": min_partition is negative"));
}

RankRules rank_rules(const std::vector<PlannedTable>& tables, int world_size) {
  RankRules rules;
  Groups together, apart;
  for (size_t t = 0; t < tables.size(); ++t) {
    rules.tables.push_back({allowed_ranks(tables[t], world_size), {}});
    const ParameterConstraints& c = tables[t].constraints;
    if (!c.keep_together.empty()) together[c.keep_together].push_back(t);
    for (const std::string& name : c.keep_apart) {
      if (apart[name].empty() || apart[name].back() != t) apart[name].push_back(t);
    }
  }
  for (const auto& [name, group] : together) {
    if (group.size() < 2) continue;
    share_ranks(name, group, tables, rules);
    rules.together.push_back(group);
  }
  int number = 0;
  for (const auto& [name, group] : apart) {
    if (group.size() >= 2) keep_apart(name, group, tables, number++, rules);
  }
  for (const std::vector<size_t>& group : rules.together) share_groups(group, rules);
  for (RankRules::OfTable& t : rules.tables) {
    if (std::find(t.allowed.begin(), t.allowed.end(), false) == t.allowed.end()) t.allowed.clear();
  }
  return rules;
}

}  // namespace tessera
