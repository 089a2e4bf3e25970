#include "planner/balanced_search.h"

#include <algorithm>
#include <set>

#include "planner/chooser.h"
#include "planner/greedy/search.h"
#include "planner/improve.h"
#include "planner/packing.h"

namespace tessera {

namespace {

constexpr double kAllProposals = 5e7;                   // all of greedy's proposals are tried up to this much work
constexpr size_t kStarts = 16;                          // number of partitions that are improved
constexpr double kLimits[] = {1, 0.5, 0.25, 0.125, 4};  // limits of the slowest shard, relative to the best limit
constexpr double kShares[] = {1, 0.97, 0.9, 0.8};       // shares of all memory that a combination may take

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
    try_greedy();
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
    out_.note_failure(problem_.space, smallest, describe(option, failure) + " even when it is empty");
    return true;
  }

  // Returns the rank that lacks least memory for a shard if all ranks are empty; its `rank` is -1 if the shard fits
  // one.
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

  // The option whose largest shard takes the least memory.
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
      return out_.note_failure(problem_.space, options, describe(problem_.space.options[failure.option], failure.at));
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

  // Tries greedy's ranks for the best options so far, and all of greedy's proposals if that is little work.
  void try_greedy() {
    if (out_.best) {
      std::optional<Solution> greedy = greedy::partitioned(problem_, out_.best->options);
      if (greedy) keep(std::move(*greedy));
    }
    if (out_.best && greedy::work_of_proposals(problem_) > kAllProposals) return;
    Budget part = out_.best ? Budget(budget_, INT64_MAX) : Budget::share(budget_, 0.5);
    SearchOutcome proposed = greedy::search(problem_, part);
    out_.num_proposals += proposed.num_proposals;
    out_.num_plans += proposed.num_plans;
    if (proposed.best) return keep(std::move(*proposed.best));
    if (proposed.least && (!out_.least || *proposed.least < *out_.least)) out_.least = proposed.least;
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

SearchOutcome balanced_search(const SearchProblem& problem, Budget& budget) {
  return BalancedSearch(problem, budget).run();
}

bool can_be_partitioned(const SearchProblem& problem, Budget& budget) {
  return BalancedSearch(problem, budget).find_any();
}

}  // namespace tessera
