#include "planner/greedy/search.h"

#include <algorithm>

#include "planner/greedy/partitioner.h"
#include "planner/greedy/proposers.h"
#include "tessera/abi/sharder.h"

namespace tessera::greedy {

namespace {

Solution solution_of(const std::vector<size_t>& options, const Partitioner& partitioner) {
  Solution out{options, {}, partitioner.perf_rating()};
  for (size_t t = 0; t < options.size(); ++t) {
    const std::span<const int> ranks = partitioner.ranks(t);
    out.ranks.emplace_back(ranks.begin(), ranks.end());
  }
  return out;
}

// The approximate work of one greedy partition, in Budget's unit.
double work_of_partition(const SearchProblem& problem) {
  double work = 0;
  for (size_t t = 0; t < problem.space.tables(); ++t) {
    size_t most = 0;
    for (size_t o = problem.space.first[t]; o < problem.space.first[t + 1]; ++o) {
      const ShardingOption& option = problem.space.options[o];
      most = std::max(most, option.placement == TSR_PLACE_EVERY_RANK ? 1 : option.shards.size());
    }
    work += static_cast<double>(most * problem.rooms.size());
  }
  return work;
}

}  // namespace

double work_of_proposals(const SearchProblem& problem) {
  double grid = 1;
  for (size_t t = 0; t < problem.space.tables(); ++t) {
    grid *= static_cast<double>(problem.space.first[t + 1] - problem.space.first[t]);
  }
  if (grid > static_cast<double>(problem.max_grid_search_proposals)) grid = 0;
  return (grid + 2.0 * static_cast<double>(problem.space.options.size())) * work_of_partition(problem);
}

std::optional<Solution> partitioned(const SearchProblem& problem, const std::vector<size_t>& options) {
  Partitioner partitioner(problem.topology, problem.rooms);
  std::vector<const ShardingOption*> proposal;
  for (const size_t o : options) proposal.push_back(&problem.space.options[o]);
  if (!partitioner.run(proposal)) return std::nullopt;
  return solution_of(options, partitioner);
}

SearchOutcome search(const SearchProblem& problem, Budget& budget) {
  SearchOutcome out;
  Partitioner partitioner(problem.topology, problem.rooms);
  std::vector<const ShardingOption*> proposal(problem.space.tables());
  const auto work = static_cast<int64_t>(std::min(work_of_partition(problem), 1e18));
  propose_all(problem.space, problem.max_grid_search_proposals, [&](const std::vector<size_t>& options) {
    ++out.num_proposals;
    for (size_t t = 0; t < options.size(); ++t) proposal[t] = &problem.space.options[options[t]];
    if (!partitioner.run(proposal)) {
      out.note_failure(problem.space, options, describe(*proposal[partitioner.failure().table], partitioner.failure()));
    } else {
      ++out.num_plans;
      if (!out.best || partitioner.perf_rating() < out.best->rating) out.best = solution_of(options, partitioner);
    }
    return budget.spend(work);
  });
  return out;
}

}  // namespace tessera::greedy
