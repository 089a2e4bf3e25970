// The rules of ParameterConstraints about ranks, for all tables together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/planned_tables.h"
#include "tessera/planner.h"

namespace tessera {

// Throws PlannerError(kBadInput) if a constraint makes no sense by itself.
void check_constraints(const ParameterConstraints& constraints, const std::string& table, int world_size);

struct RankRules {
  struct OfTable {
    std::vector<bool> allowed;  // one per rank; empty: all ranks are allowed
    std::vector<int> apart;     // numbers of its apart groups; no two tables of a group may share a rank
  };
  std::vector<OfTable> tables;
  std::vector<std::vector<size_t>> together;  // groups of at least two tables that share their ranks
};

// Throws PlannerError(kBadInput), which says which and why, if constraints contradict each other.
RankRules rank_rules(const std::vector<PlannedTable>& tables, int world_size);

// Lists the constraints that a plan from elsewhere breaks, a line for each; empty if it keeps all. The plan must fit
// these modules, see plan_mismatch().
std::string broken_constraints(const ShardingPlan& plan, const std::vector<PlannerModule>& modules,
                               const std::map<std::string, ParameterConstraints>& constraints);

// Throws PlannerError(kBadInput).
[[noreturn]] void bad_input(const std::string& text);

// Returns "a, b and c". Of more than eight names it lists the first seven.
std::string list_text(const std::vector<std::string>& names);

}  // namespace tessera
