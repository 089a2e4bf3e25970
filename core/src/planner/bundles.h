// Treats tables that share their ranks as one table.
#pragma once

#include <vector>

#include "tessera/planner.h"

namespace tessera {

struct Bundles {
  SearchSpace space;                        // each "table" is a bundle: the tables of one group, or a single table
  std::vector<std::vector<size_t>> tables;  // the tables of each bundle
  std::vector<std::vector<size_t>> parts;   // for each of space.options, one option per table of the bundle
};

// Combines the options of a group's tables that have the same number of shards and the same placement: the shards i of
// all tables become one shard of the bundle. Throws PlannerError(kNoOption) if a group has no such options.
Bundles bundle(const SearchSpace& space);

}  // namespace tessera
