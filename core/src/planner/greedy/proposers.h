// The combinations of options that TorchRec's proposers try (tests/conformance/SHARDING.md section 8).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/planner.h"

namespace tessera::greedy {

// Called with one option per table, as indices into SearchSpace::options. Returns false to end the search.
using ProposalSink = std::function<bool(const std::vector<size_t>&)>;

// Runs grid search, greedy by largest shard, greedy by total time, and uniform. No proposal is repeated.
void propose_all(const SearchSpace& space, int64_t max_grid_search_proposals, const ProposalSink& sink);

}  // namespace tessera::greedy
