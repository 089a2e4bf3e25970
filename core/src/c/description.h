// Parses the JSON in tessera.h: a model's description and the planner's options. docs/c.md lists the keys.
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
  ShardedModuleOptions sharded;                             // except is_weighted, which belongs to the module
  std::vector<std::pair<std::string, Shape>> dense;         // parameters by name
};
// kInvalidArgument: the error names the key and its place: "the model: modules[0].tables[2].rows ...".
Description parse_description(const std::string& text);

struct Planning {
  PlannerOptions options;
  std::map<std::string, ShardingRequest> shardings;  // by table; if not empty, nothing is searched
};
// `text` may be empty: defaults. `topology`: that of a group, which `text` must then not give.
Planning parse_planning(const std::string& text, const Description& description,
                        const std::optional<Topology>& topology);

// The plan that `planning.shardings` asks for, with a request for each table. kInvalidArgument: names a table without
// one.
ShardingPlan requested_plan(const Runtime& runtime, const Description& description, const Planning& planning);

}  // namespace tessera::c
