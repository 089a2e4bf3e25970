// The best combination of options with their ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/board.h"
#include "planner/budget.h"
#include "tessera/planner.h"

namespace tessera {

struct SearchOutcome {
  std::optional<Solution> best;
  int64_t num_proposals = 0;     // combinations that were tried
  int64_t num_plans = 0;         // those that could be partitioned
  std::optional<Storage> least;  // smallest total storage of a combination that could not
  std::string failure;           // the last one, in words
};

// `rooms` has an entry per rank.
struct SearchProblem {
  const SearchSpace& space;
  const Topology& topology;
  const std::vector<Storage>& rooms;
  int64_t max_grid_search_proposals;
};

// TorchRec's proposers and partitioner (SHARDING.md sections 7 and 8).
SearchOutcome torchrec_search(const SearchProblem& problem, Budget& budget);

// A handful of combinations, from little time in sum to fast slowest shards, each packed; the best ones are improved
// shard by shard. TorchRec's proposals are tried too where that is little work.
SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget);
// Only whether there is a partition: the first that is found, or none.
bool can_be_partitioned(const SearchProblem& problem, Budget& budget);

}  // namespace tessera
