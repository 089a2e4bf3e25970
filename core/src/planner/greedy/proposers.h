// Which combinations of options are worth a try, as TorchRec proposes them (section 8).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tessera/planner.h"

namespace tessera::greedy {

// Called with one option per table, as indices into SearchSpace::options. False: no more.
using ProposalSink = std::function<bool(const std::vector<size_t>&)>;

// Grid search, greedy by largest shard, greedy by sum, uniform. Every proposal is handed out once.
void propose_all(const SearchSpace& space, int64_t max_grid_search_proposals, const ProposalSink& sink);

}  // namespace tessera::greedy
