// The input of a search and its result, the best combination of options with their ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/planner.h"
#include "tessera/sharding.h"

namespace tessera {

// The reason why a proposal could not be partitioned: the first shard for which no rank had room.
struct PartitionFailure {
  size_t table = 0;  // index into the proposal
  size_t shard = 0;
  int rank = 0;     // the rank that lacked least
  Storage missing;  // the memory that it lacked
};

// A partition of all tables of a search space.
struct Solution {
  std::vector<size_t> options;          // for each table an index into SearchSpace::options
  std::vector<std::vector<int>> ranks;  // per table, per shard
  double rating = 0;                    // time of the busiest rank
};

struct SearchOutcome {
  std::optional<Solution> best;
  int64_t num_proposals = 0;     // combinations that were tried
  int64_t num_plans = 0;         // combinations that could be partitioned
  std::optional<Storage> least;  // smallest total storage of a combination that could not be partitioned
  std::string failure;           // the last failure, in words

  // Records a combination that could not be partitioned, with the reason in words.
  void note_failure(const SearchSpace& space, const std::vector<size_t>& options, std::string text);
};

// `rooms` has an entry per rank.
struct SearchProblem {
  const SearchSpace& space;
  const Topology& topology;
  const std::vector<Storage>& rooms;
  int64_t max_grid_search_proposals;
};

// Returns "shard 0 of table film (row_wise, fused) needs 2 GiB of hbm, and rank 3, where least is missing, lacks ...".
std::string describe(const ShardingOption& option, const PartitionFailure& failure);

}  // namespace tessera
