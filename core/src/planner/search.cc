#include "planner/search.h"

#include <algorithm>
#include <set>

#include "planner/choice.h"
#include "planner/improve.h"
#include "planner/packing.h"
#include "planner/partitioner.h"
#include "planner/proposers.h"
#include "tessera/abi/sharder.h"

namespace tessera {

namespace {

constexpr double kAllProposals = 5e7;  // units of work that TorchRec's proposals may take in the balanced search
constexpr size_t kStarts = 16;         // partitions that are improved
constexpr double kLimits[] = {1, 0.5, 0.25, 0.125, 4};  // of the slowest shard, as parts of the best limit
constexpr double kShares[] = {1, 0.97, 0.9, 0.8};       // of the memory that a combination may take in sum

std::string describe(const ShardingOption& option, const PartitionFailure& failure) {
  const Storage& needed = option.shards.run_of(failure.shard).first.storage;
  std::string text = cat("shard ", failure.shard, " of table ", option.name, " (", option.sharding_type, ", ",
                         option.compute_kernel, ") needs ", needed.str());
  if (failure.rank < 0 || failure.missing == Storage{}) {
    return text + ", and no allowed ranks have room for all its shards";
  }
  const Storage& missing = failure.missing;
  return cat(text, ", and rank ", failure.rank, ", where least is missing, lacks ", missing.str(), " (",
             std::max({missing.hbm, missing.ddr, missing.ssd}), " bytes)");
}

Storage total_of(const SearchSpace& space, const std::vector<size_t>& options) {
  Storage total;
  for (const size_t o : options) total += space.options[o].total_storage;
  return total;
}

void note_failure(const SearchProblem& problem, const std::vector<size_t>& options, std::string text,
                  SearchOutcome& out) {
  const Storage total = total_of(problem.space, options);
  if (!out.least || total < *out.least) out.least = total;
  out.failure = std::move(text);
}

Solution solution_of(const std::vector<size_t>& options, const GreedyPartitioner& partitioner) {
  Solution out{options, {}, partitioner.perf_rating()};
  for (size_t t = 0; t < options.size(); ++t) {
    const std::span<const int> ranks = partitioner.ranks(t);
    out.ranks.emplace_back(ranks.begin(), ranks.end());
  }
  return out;
}

// Looks at ranks that one greedy partition takes, about.
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

double work_of_proposals(const SearchProblem& problem) {
  double grid = 1;
  for (size_t t = 0; t < problem.space.tables(); ++t) {
    grid *= static_cast<double>(problem.space.first[t + 1] - problem.space.first[t]);
  }
  if (grid > static_cast<double>(problem.max_grid_search_proposals)) grid = 0;
  return (grid + 2.0 * static_cast<double>(problem.space.options.size())) * work_of_partition(problem);
}

class BalancedSearch {
 public:
  BalancedSearch(const SearchProblem& problem, Budget& budget)
      : problem_(problem),
        budget_(budget),
        chooser_(problem.space, problem.rooms, budget),
        board_(problem.space, problem.topology, problem.rooms, budget) {}

  SearchOutcome run() {
    if (nothing_fits()) return std::move(out_);
    for (const double share : kShares) try_share(share, false);
    try_torchrec();
    for (Solution& start : starts_) improve_start(start);
    return std::move(out_);
  }

  bool find_any() {
    if (nothing_fits()) return false;
    for (const double share : kShares) {
      try_share(share, true);
      if (!starts_.empty() || budget_.over()) break;
    }
    return !starts_.empty();
  }

 private:
  bool nothing_fits() {
    const size_t table = chooser_.table_without_room();
    if (table == problem_.space.tables()) return false;
    std::vector<size_t> smallest;
    for (size_t t = 0; t < problem_.space.tables(); ++t) smallest.push_back(smallest_option(t));
    const ShardingOption& option = problem_.space.options[smallest[table]];
    ++out_.num_proposals;
    PartitionFailure failure{table, 0, -1, {}};
    for (const Shards::Run& run : option.shards.runs()) {
      const PartitionFailure here = least_missing_on(option, run);
      if (here.rank >= 0 && (failure.rank < 0 || here.missing < failure.missing)) failure = here;
    }
    failure.table = table;
    note_failure(problem_, smallest, describe(option, failure) + " even when it is empty", out_);
    return true;
  }

  // On the ranks when they are empty; rank -1: there is one with room.
  PartitionFailure least_missing_on(const ShardingOption& option, const Shards::Run& run) const {
    PartitionFailure least{0, run.begin, -1, {}};
    const Storage& needed = run.first.storage;
    for (size_t r = 0; r < problem_.rooms.size(); ++r) {
      if (!option.allowed_ranks.empty() && !option.allowed_ranks[r]) continue;
      const Storage& room = problem_.rooms[r];
      if (needed.fits_in(room)) return {0, run.begin, -1, {}};
      const Storage missing{std::max<int64_t>(needed.hbm - room.hbm, 0), std::max<int64_t>(needed.ddr - room.ddr, 0),
                            std::max<int64_t>(needed.ssd - room.ssd, 0)};
      if (least.rank < 0 || missing < least.missing) least = {0, run.begin, static_cast<int>(r), missing};
    }
    return least;
  }

  // Whose largest shard takes the least memory.
  size_t smallest_option(size_t table) const {
    size_t best = problem_.space.first[table];
    const auto largest = [&](size_t o) {
      Storage most;
      for (const Shards::Run& run : problem_.space.options[o].shards.runs()) most = std::max(most, run.first.storage);
      return most;
    };
    for (size_t o = best + 1; o < problem_.space.first[table + 1]; ++o) {
      if (largest(o) < largest(best)) best = o;
    }
    return best;
  }

  void try_share(double share, bool stop_at_first) {
    const double limit = chooser_.best_limit(share);
    for (const Board::Prefer prefer : {Board::Prefer::kIdle, Board::Prefer::kRoomy}) {
      const int64_t plans_before = out_.num_plans;
      for (const double part : kLimits) {
        if (budget_.over()) return;
        try_options(chooser_.choose(limit * part, share), prefer);
        if (stop_at_first && !starts_.empty()) return;
      }
      if (out_.num_plans > plans_before) return;
    }
  }

  void try_options(const std::vector<size_t>& options, Board::Prefer prefer) {
    if (!tried_.insert({options, prefer}).second) return;
    ++out_.num_proposals;
    PackingFailure failure;
    std::optional<Solution> found =
        pack(problem_.space, problem_.rooms, chooser_, options, prefer, board_, budget_, failure);
    if (!found) {
      return note_failure(problem_, options, describe(problem_.space.options[failure.option], failure.at), out_);
    }
    ++out_.num_plans;
    keep(std::move(*found));
  }

  void keep(Solution solution) {
    if (!out_.best || solution.rating < out_.best->rating) out_.best = solution;
    starts_.push_back(std::move(solution));
    std::stable_sort(starts_.begin(), starts_.end(),
                     [](const Solution& a, const Solution& b) { return a.rating < b.rating; });
    if (starts_.size() > kStarts) starts_.pop_back();
  }

  // Greedy's ranks for the options found, and all its proposals where they are little work.
  void try_torchrec() {
    if (out_.best) {
      GreedyPartitioner partitioner(problem_.topology, problem_.rooms);
      std::vector<const ShardingOption*> proposal;
      for (const size_t o : out_.best->options) proposal.push_back(&problem_.space.options[o]);
      if (partitioner.run(proposal)) keep(solution_of(out_.best->options, partitioner));
    }
    if (out_.best && work_of_proposals(problem_) > kAllProposals) return;
    Budget part = out_.best ? Budget(budget_, INT64_MAX) : Budget::share(budget_, 0.5);
    SearchOutcome torchrec = torchrec_search(problem_, part);
    out_.num_proposals += torchrec.num_proposals;
    out_.num_plans += torchrec.num_plans;
    if (torchrec.best) return keep(std::move(*torchrec.best));
    if (torchrec.least && (!out_.least || *torchrec.least < *out_.least)) out_.least = torchrec.least;
  }

  void improve_start(const Solution& start) {
    board_.set(start);
    Budget part = Budget::share(budget_, 0.25);
    improve(chooser_, board_, part);
    Solution better = board_.solution();
    if (better.rating < out_.best->rating) out_.best = std::move(better);
  }

  const SearchProblem& problem_;
  Budget& budget_;
  Chooser chooser_;
  Board board_;
  SearchOutcome out_;
  std::vector<Solution> starts_;  // the best ones so far
  std::set<std::pair<std::vector<size_t>, Board::Prefer>> tried_;
};

}  // namespace

SearchOutcome torchrec_search(const SearchProblem& problem, Budget& budget) {
  SearchOutcome out;
  GreedyPartitioner partitioner(problem.topology, problem.rooms);
  std::vector<const ShardingOption*> proposal(problem.space.tables());
  const auto work = static_cast<int64_t>(std::min(work_of_partition(problem), 1e18));
  propose_all(problem.space, problem.max_grid_search_proposals, [&](const std::vector<size_t>& options) {
    ++out.num_proposals;
    for (size_t t = 0; t < options.size(); ++t) proposal[t] = &problem.space.options[options[t]];
    if (!partitioner.run(proposal)) {
      note_failure(problem, options, describe(*proposal[partitioner.failure().table], partitioner.failure()), out);
    } else {
      ++out.num_plans;
      if (!out.best || partitioner.perf_rating() < out.best->rating) out.best = solution_of(options, partitioner);
    }
    return budget.spend(work);
  });
  return out;
}

SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget) {
  return BalancedSearch(problem, budget).run();
}

bool can_be_partitioned(const SearchProblem& problem, Budget& budget) {
  return BalancedSearch(problem, budget).find_any();
}

}  // namespace tessera
