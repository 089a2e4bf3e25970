// The rules of ParameterConstraints about ranks, for all tables together.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/planned_tables.h"
#include "tessera/planner.h"

namespace tessera {

// PlannerError(kBadInput) for a constraint that makes no sense by itself.
void check_constraints(const ParameterConstraints& constraints, const std::string& table, int world_size);

struct RankRules {
  struct OfTable {
    std::vector<bool> allowed;  // one per rank; empty: all
    std::vector<int> apart;     // groups of which no two tables may share a rank
  };
  std::vector<OfTable> tables;
  std::vector<std::vector<size_t>> together;  // tables that share their ranks, two at least
};

// PlannerError(kBadInput) where constraints contradict each other: which, and why.
RankRules rank_rules(const std::vector<PlannedTable>& tables, int world_size);

// Lists the constraints that a plan made elsewhere breaks, a line for each; empty: it keeps all. `plan` must be one for
// these modules: plan_mismatch().
std::string broken_constraints(const ShardingPlan& plan, const std::vector<PlannerModule>& modules,
                               const std::map<std::string, ParameterConstraints>& constraints);

// PlannerError(kBadInput).
[[noreturn]] void bad_input(const std::string& text);

// "a, b and c"; of more than eight the first seven
std::string list_text(const std::vector<std::string>& names);

}  // namespace tessera
