// Tables that share their ranks, as if they were one table.
#pragma once

#include <vector>

#include "tessera/planner.h"

namespace tessera {

struct Bundles {
  SearchSpace space;                        // a "table" is a bundle: the tables of one group, or a single table
  std::vector<std::vector<size_t>> tables;  // of each bundle
  std::vector<std::vector<size_t>> parts;   // of each of space.options: an option for each of the bundle's tables
};

// Tables of a group are combined where they are cut into equally many shards with the same placement; shard i of all of
// them is one shard of the bundle. PlannerError(kNoOption) for a group that cannot be.
Bundles bundle(const SearchSpace& space);

}  // namespace tessera
