// The JSON that tessera.h takes: a model's description and what the planner is told. docs/c.md has the keys.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/planner.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"

namespace tessera::c {

struct Description {
  std::vector<PlannerModule> modules;
  std::map<std::string, ParameterConstraints> constraints;  // by table
  ShardedModuleOptions sharded;                             // is_weighted aside, which is the module's
  std::vector<std::pair<std::string, Shape>> dense;         // parameters by name
};
// kInvalidArgument names the key and its place: "the model: modules[0].tables[2].rows ...".
Description parse_description(const std::string& text);

struct Planning {
  PlannerOptions options;
  std::map<std::string, ShardingRequest> shardings;  // by table; not empty: nothing is searched
};
// `text` may be empty: defaults. `topology`: that of a group, which `text` then does not give.
Planning parse_planning(const std::string& text, const Description& description,
                        const std::optional<Topology>& topology);

// The plan that `planning.shardings` ask for, one request for each table. kInvalidArgument names one without.
ShardingPlan requested_plan(const Runtime& runtime, const Description& description, const Planning& planning);

}  // namespace tessera::c
