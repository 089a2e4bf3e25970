#include "tessera/planner.h"

#include <algorithm>
#include <iomanip>

#include "planner/advice.h"
#include "planner/bundles.h"
#include "planner/layout.h"
#include "planner/reservation.h"
#include "planner/search.h"
#include "planner/search_space.h"

namespace tessera {

namespace {

constexpr double kSearchShare = 0.7;       // of the time limit; the rest is for explaining a failure
constexpr double kEnumerationShare = 0.5;  // at most, for what every table may be

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

int64_t saturating_sum(int64_t a, int64_t b) {
  int64_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? INT64_MAX : out;
}

std::string bytes_text(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes > -1024 && bytes < 1024) return cat(bytes, " B");
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; (value >= 1024 || value <= -1024) && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  std::ostringstream out;
  out << std::setprecision(value >= 1000 ? 4 : 3) << value << ' ' << kUnits[unit];
  return out.str();
}

[[noreturn]] void no_plan(const PlannerOptions& options, const std::vector<Storage>& rooms,
                          const SearchOutcome& outcome, const std::string& advice) {
  Storage everywhere;
  for (const Storage& room : rooms)  // of which the reservation may have left less than nothing
    everywhere += {std::max<int64_t>(0, room.hbm), std::max<int64_t>(0, room.ddr), 0};
  const bool insufficient = !outcome.least || !outcome.least->fits_in(everywhere);
  const auto kind = insufficient ? PlannerError::Kind::kInsufficientStorage : PlannerError::Kind::kStrictConstraints;
  std::string text = cat("no plan among ", outcome.num_proposals, " proposals: ");
  if (!outcome.least) {
    text += cat("the time limit of ", options.time_limit_s, " s ended the search before the first one");
  } else if (insufficient) {
    text += cat("the smallest needs ", outcome.least->str(), ", and the ", options.topology.world_size, " ranks have ",
                everywhere.str(), " together");
  } else {
    text += "memory suffices in total, but no way was found to distribute the tables";
  }
  if (!outcome.failure.empty()) text += cat("; ", outcome.failure);
  if (!options.topology.ddr_note.empty()) text += cat("; ", options.topology.ddr_note);
  throw PlannerError(kind, text + advice, outcome.num_proposals);
}

ParameterSharding sharding_of(const ShardingOption& option, const std::vector<int>& ranks) {
  ParameterSharding out{option.sharding_type, option.compute_kernel, option.combine, option.routed, {}};
  for (size_t i = 0; i < option.shards.size(); ++i) {
    const Shard s = option.shards[i];
    out.shards.push_back({s.rows, s.cols, s.row, s.col, ranks[i]});
  }
  return out;
}

EmbeddingModuleShardingPlan& module_plan(ShardingPlan& plan, const std::string& path) {
  for (auto& [known, tables] : plan.modules) {
    if (known == path) return tables;
  }
  return plan.modules.emplace_back(path, EmbeddingModuleShardingPlan{}).second;
}

// A solution for bundles as one for tables.
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
  return options.search == PlannerSearch::kTorchrec ? torchrec_search(problem, budget)
                                                    : balanced_search(problem, budget);
}

}  // namespace

Storage& Storage::operator+=(const Storage& other) {
  hbm = saturating_sum(hbm, other.hbm);
  ddr = saturating_sum(ddr, other.ddr);
  ssd = saturating_sum(ssd, other.ssd);
  return *this;
}

Storage& Storage::operator-=(const Storage& other) {
  hbm -= other.hbm;
  ddr -= other.ddr;
  ssd -= other.ssd;
  return *this;
}

std::string Storage::str() const {
  std::string out;
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes != 0) out += cat(out.empty() ? "" : ", ", bytes_text(bytes), " of ", name);
  };
  add("hbm", hbm);
  add("ddr", ddr);
  if (hbm == 0 && ddr == 0) add("ssd", ssd);
  return out.empty() ? "nothing" : out;
}

Perf& Perf::operator+=(const Perf& other) {
  fwd_compute += other.fwd_compute;
  fwd_comms += other.fwd_comms;
  bwd_compute += other.bwd_compute;
  bwd_comms += other.bwd_comms;
  prefetch_compute += other.prefetch_compute;
  input_dist_comms += other.input_dist_comms;
  return *this;
}

Topology Topology::of(int world_size, int local_world_size, const std::string& compute_device) {
  Topology t;
  t.world_size = world_size;
  t.local_world_size = local_world_size == 0 ? world_size : local_world_size;
  t.compute_device = compute_device;
  t.hbm_cap = t.accelerator() ? int64_t{32} << 30 : 0;
  t.validate();
  return t;
}

void Topology::set_memory_gib(const std::vector<double>& hbm, const std::vector<double>& ddr) {
  const auto set = [&](const char* name, const std::vector<double>& gib, int64_t& cap, std::vector<int64_t>& caps) {
    if (gib.size() > 1 && std::ssize(gib) != world_size) {
      throw PlannerError(PlannerError::Kind::kBadInput, cat(name, " has ", gib.size(), " numbers for ", world_size,
                                                            " ranks; give one for each or one for all"));
    }
    std::vector<int64_t> bytes;
    for (const double value : gib) {
      if (!(value >= 0 && value < 8e9)) {
        throw PlannerError(PlannerError::Kind::kBadInput, cat(name, ": ", value, " GiB is no amount of memory"));
      }
      bytes.push_back(value > 0 ? static_cast<int64_t>(value * (1 << 30)) : cap);
    }
    if (bytes.size() == 1) cap = bytes.front();
    if (bytes.size() > 1) caps = std::move(bytes);
  };
  set("hbm_gib", hbm, hbm_cap, hbm_caps);
  set("ddr_gib", ddr, ddr_cap, ddr_caps);
  if (!ddr.empty() && std::find(ddr.begin(), ddr.end(), 0.0) == ddr.end()) ddr_note.clear();
}

Storage Topology::memory(int rank) const {
  const auto r = static_cast<size_t>(rank);
  return {hbm_caps.empty() ? hbm_cap : hbm_caps[r], ddr_caps.empty() ? ddr_cap : ddr_caps[r], ssd_cap};
}

void Topology::validate() const {
  const auto bad = [](const std::string& text) { throw PlannerError(PlannerError::Kind::kBadInput, text); };
  if (compute_device != "cpu" && compute_device != "cuda" && compute_device != "hip") {
    bad(cat("unsupported compute device \"", compute_device, "\"; known are cpu, cuda and hip"));
  }
  if (world_size < 1 || local_world_size < 1 || world_size % local_world_size != 0) {
    bad(cat("a world of ", world_size, " ranks cannot have ", local_world_size, " ranks on every host"));
  }
  const auto check_list = [&](const char* name, const std::vector<int64_t>& caps) {
    if (!caps.empty() && std::ssize(caps) != world_size) {
      bad(cat(name, " has ", caps.size(), " entries for ", world_size, " ranks; give one for each or one for all"));
    }
  };
  check_list("hbm per rank", hbm_caps);
  check_list("ddr per rank", ddr_caps);
  for (int r = 0; r < world_size; ++r) {
    const Storage m = memory(r);
    if (m.hbm < 0 || m.ddr < 0 || m.ssd < 0) bad(cat("the memory of rank ", r, " cannot be negative"));
  }
  for (const double bandwidth : {hbm_mem_bw, ddr_mem_bw, hbm_to_ddr_mem_bw, intra_host_bw, inter_host_bw}) {
    if (!(bandwidth > 0)) bad(cat("a bandwidth of ", bandwidth, " bytes per millisecond is not positive"));
  }
}

const char* ShardingOption::partition_by() const {
  switch (placement) {
    case TSR_PLACE_ANY_RANK:
      return "device";
    case TSR_PLACE_EVERY_RANK:
      return "uniform";
    case TSR_PLACE_HOSTS:
      return "multi_host";
    default:
      return "host";
  }
}

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
                       cat("a time limit of ", options_.time_limit_s, " s is negative; 0 means none"));
  }
}

EmbeddingShardingPlanner::~EmbeddingShardingPlanner() = default;

ReservedStorage EmbeddingShardingPlanner::reserve(const std::vector<PlannerModule>& modules) const {
  return reserve_storage(modules, tables_in_search_order(modules, options_), options_);
}

SearchSpace EmbeddingShardingPlanner::enumerate(const std::vector<PlannerModule>& modules) const {
  Budget endless(0);
  return enumerate_within(runtime_, options_, modules, endless);
}

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
  out.reserved = reserve(modules);
  Budget budget(options_.time_limit_s, options_.stop);
  Budget looking = Budget::share(budget, kEnumerationShare);
  out.space = enumerate_within(runtime_, options_, modules, looking);
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
      outcome.failure += cat(outcome.failure.empty() ? "" : "; ", "the time limit of ", options_.time_limit_s,
                             " s left shardings of ", out.space.narrowed, " tables out: a longer one may find a plan");
    no_plan(options_, rooms, outcome, advice(runtime_, options_, modules, budget));
  }
  fill_plan(*outcome.best, out);
  return out;
}

}  // namespace tessera
