#include "tessera/planner.h"

#include <algorithm>

#include "planner/advice.h"
#include "planner/balanced_search.h"
#include "planner/bundles.h"
#include "planner/greedy/search.h"
#include "planner/reservation.h"
#include "planner/search_space.h"

namespace tessera {

namespace {

constexpr double kSearchShare = 0.7;       // share of the time limit for the search; the rest explains a failure
constexpr double kEnumerationShare = 0.5;  // largest share of that for listing the tables' options

Code code_of(PlannerError::Kind kind) {
  switch (kind) {
    case PlannerError::Kind::kInsufficientStorage:
      return Code::kResourceExhausted;
    case PlannerError::Kind::kStrictConstraints:
      return Code::kFailedPrecondition;
    default:
      return Code::kInvalidArgument;
  }
}

[[noreturn]] void no_plan(const PlannerOptions& options, const std::vector<Storage>& rooms,
                          const SearchOutcome& outcome, const std::string& advice) {
  Storage everywhere;
  for (const Storage& room : rooms)  // the reservation may have left a negative amount
    everywhere += {std::max<int64_t>(0, room.hbm), std::max<int64_t>(0, room.ddr), std::max<int64_t>(0, room.ssd)};
  const bool insufficient = !outcome.least || !outcome.least->fits_in(everywhere);
  const bool on_disk = outcome.least && outcome.least->ssd > 0;
  if (!on_disk) everywhere.ssd = 0;
  const auto kind = insufficient ? PlannerError::Kind::kInsufficientStorage : PlannerError::Kind::kStrictConstraints;
  std::string text = str_cat("no plan among ", outcome.num_proposals, " proposals: ");
  if (!outcome.least) {
    text += str_cat("the time limit of ", options.time_limit_s, " s ended the search before the first one");
  } else if (insufficient) {
    text += str_cat("the smallest needs ", outcome.least->str(), ", and the ", options.topology.world_size,
                    " ranks have ", everywhere.str(), " together");
  } else {
    text += "memory suffices in total, but no way was found to distribute the tables";
  }
  if (!outcome.failure.empty()) text += str_cat("; ", outcome.failure);
  if (!options.topology.ddr_note.empty()) text += str_cat("; ", options.topology.ddr_note);
  if (on_disk && !options.topology.ssd_note.empty()) text += str_cat("; ", options.topology.ssd_note);
  throw PlannerError(kind, text + advice, outcome.num_proposals);
}

ParameterSharding sharding_of(const ShardingOption& option, const std::vector<int>& ranks) {
  ParameterSharding out{option.sharding_type, option.compute_kernel, option.combine, option.routed, {}, option.cookie};
  for (size_t i = 0; i < option.shards.size(); ++i) {
    const Shard s = option.shards[i];
    out.shards.push_back({s.rows, s.cols, s.row, s.col, ranks[i], i - option.first_replicated < option.num_replicated});
  }
  return out;
}

EmbeddingModuleShardingPlan& module_plan(ShardingPlan& plan, const std::string& path) {
  for (auto& [known, tables] : plan.modules) {
    if (known == path) return tables;
  }
  return plan.modules.emplace_back(path, EmbeddingModuleShardingPlan{}).second;
}

// Turns a solution for bundles into a solution for tables.
Solution unbundled(const Solution& of_bundles, const Bundles& bundles, size_t tables) {
  Solution out{std::vector<size_t>(tables), std::vector<std::vector<int>>(tables), of_bundles.rating};
  for (size_t b = 0; b < bundles.tables.size(); ++b) {
    const std::vector<size_t>& parts = bundles.parts[of_bundles.options[b]];
    for (size_t i = 0; i < parts.size(); ++i) {
      out.options[bundles.tables[b][i]] = parts[i];
      out.ranks[bundles.tables[b][i]] = of_bundles.ranks[b];
    }
  }
  return out;
}

void fill_plan(const Solution& best, PlanResult& out) {
  for (size_t t = 0; t < best.options.size(); ++t) {
    const ShardingOption& option = out.space.options[best.options[t]];
    const std::vector<int>& ranks = best.ranks[t];
    module_plan(out.plan, option.path).add(option.name, sharding_of(option, ranks));
    for (size_t i = 0; i < ranks.size(); ++i) {
      const Shards::Run& run = option.shards.run_of(i);
      out.rank_perf[static_cast<size_t>(ranks[i])] += run.load;
      out.rank_storage[static_cast<size_t>(ranks[i])] += run.first.storage;
    }
  }
  out.chosen = best.options;
  out.perf_rating = best.rating;
}

SearchOutcome search_for(const PlannerOptions& options, const SearchSpace& space, const std::vector<Storage>& rooms,
                         Budget& budget) {
  const SearchProblem problem{space, options.topology, rooms, options.max_grid_search_proposals};
  return options.search == PlannerSearch::kTorchrec ? greedy::search(problem, budget)
                                                    : balanced_search(problem, budget);
}

}  // namespace

PlannerError::PlannerError(Kind kind, const std::string& message, int64_t num_proposals)
    : Error(code_of(kind), message), kind_(kind), num_proposals_(num_proposals) {}

std::string PlannerError::torchrec_class() const {
  switch (kind_) {
    case Kind::kBadInput:
      return "AssertionError";
    case Kind::kNoOption:
      return "RuntimeError";
    default:
      return "PlannerError";
  }
}

std::string PlannerError::error_type() const {
  switch (kind_) {
    case Kind::kInsufficientStorage:
      return "insufficient_storage";
    case Kind::kStrictConstraints:
      return "strict_constraints";
    default:
      return "";
  }
}

PlannerSearch planner_search_from(const std::string& name) {
  constexpr std::pair<const char*, PlannerSearch> kSearches[] = {{"balanced", PlannerSearch::kBalanced},
                                                                 {"torchrec", PlannerSearch::kTorchrec}};
  for (const auto& [known, search] : kSearches) {
    if (name == known) return search;
  }
  fail(Code::kInvalidArgument, "unknown search \"", name, "\"; known are balanced and torchrec");
}

EmbeddingShardingPlanner::EmbeddingShardingPlanner(const Runtime& runtime, PlannerOptions options)
    : runtime_(runtime), options_(std::move(options)) {
  options_.topology.validate();
  if (!(options_.time_limit_s >= 0)) {
    throw PlannerError(PlannerError::Kind::kBadInput,
                       str_cat("a time limit of ", options_.time_limit_s, " s is negative; 0 means none"));
  }
}

EmbeddingShardingPlanner::~EmbeddingShardingPlanner() = default;

PlanResult EmbeddingShardingPlanner::plan(const std::vector<PlannerModule>& modules) const {
  const Topology& topology = options_.topology;
  PlanResult out;
  out.topology = topology;
  out.plan.world_size = topology.world_size;
  out.plan.local_world_size = topology.local_world_size;
  out.plan.compute_device = topology.compute_device;
  out.plan.model_hash = model_hash(modules);
  out.rank_perf.resize(static_cast<size_t>(topology.world_size));
  out.rank_storage.resize(static_cast<size_t>(topology.world_size));
  out.reserved = reserve_storage(modules, options_);
  Budget budget(options_.time_limit_s, options_.stop);
  Budget looking = Budget::share(budget, kEnumerationShare);
  out.space = enumerate_within(runtime_, options_, modules, looking);
  out.plan.sharders = out.space.sharders;
  if (out.space.tables() == 0) return out;

  Budget part = Budget::share(budget, kSearchShare);
  const std::vector<Storage>& rooms = out.reserved.per_rank;
  SearchOutcome outcome;
  if (out.space.together.empty()) {
    outcome = search_for(options_, out.space, rooms, part);
  } else {
    const Bundles bundles = bundle(out.space);
    outcome = search_for(options_, bundles.space, rooms, part);
    if (outcome.best) outcome.best = unbundled(*outcome.best, bundles, out.space.tables());
  }
  out.num_proposals = outcome.num_proposals;
  out.num_plans = outcome.num_plans;
  out.cut_short = part.over();
  if (!outcome.best) {
    if (out.space.narrowed > 0)
      outcome.failure +=
          str_cat(outcome.failure.empty() ? "" : "; ", "the time limit of ", options_.time_limit_s,
                  " s left shardings of ", out.space.narrowed, " tables out: a longer one may find a plan");
    no_plan(options_, rooms, outcome, advice(runtime_, options_, modules, budget));
  }
  fill_plan(*outcome.best, out);
  return out;
}

}  // namespace tessera
