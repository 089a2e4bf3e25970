#include "tessera/planner.h"

#include <algorithm>
#include <iomanip>

#include "planner/layout.h"
#include "planner/partitioner.h"
#include "planner/proposers.h"
#include "planner/reservation.h"
#include "planner/search_space.h"

namespace tessera {

namespace {

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

// What plan() remembers of the proposals that failed.
struct Failures {
  std::optional<Storage> least;  // smallest total storage of a failed proposal
  std::string example;           // the last failure in words
};

std::string describe(const ShardingOption& option, const PartitionFailure& failure) {
  const Shard& shard = option.shards[failure.shard];
  std::string text = cat("shard ", failure.shard, " of table ", option.name, " (", option.sharding_type, ", ",
                         option.compute_kernel, ") needs ", shard.storage.str());
  if (failure.missing == Storage{}) return text + ", and no allowed ranks have room for all its shards";
  return cat(text, "; rank ", failure.rank, ", where least is missing, lacks ", failure.missing.str());
}

[[noreturn]] void no_plan(const PlannerOptions& options, const Storage& available, const Failures& failures,
                          int64_t num_proposals) {
  Storage everywhere;
  for (int r = 0; r < options.topology.world_size; ++r) everywhere += available;
  const bool insufficient = !failures.least->fits_in(everywhere);
  const auto kind = insufficient ? PlannerError::Kind::kInsufficientStorage : PlannerError::Kind::kStrictConstraints;
  std::string text = cat("no plan among ", num_proposals, " proposals: ");
  if (insufficient) {
    text += cat("the smallest needs ", failures.least->str(), ", and the ", options.topology.world_size, " ranks have ",
                everywhere.str(), " together; add ranks, reduce tables or batch, or reserve less");
  } else {
    text += "memory suffices in total, but the constraints leave no way to distribute the tables; relax them";
  }
  throw PlannerError(kind, cat(text, " (last failure: ", failures.example, ")"), num_proposals);
}

ParameterSharding sharding_of(const ShardingOption& option, std::span<const int> ranks) {
  ParameterSharding out{option.sharding_type, option.compute_kernel, option.combine, option.routed, {}};
  for (size_t i = 0; i < option.shards.size(); ++i) {
    const Shard& s = option.shards[i];
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

// The best proposal so far, with the ranks of its shards.
struct Best {
  std::vector<size_t> options;
  std::vector<int> ranks;
  double rating = 0;
};

void fill_plan(const Best& best, PlanResult& out) {
  size_t next = 0;
  for (const size_t index : best.options) {
    const ShardingOption& option = out.space.options[index];
    const std::span<const int> ranks = std::span<const int>(best.ranks).subspan(next, option.shards.size());
    next += ranks.size();
    module_plan(out.plan, option.path).add(option.name, sharding_of(option, ranks));
    for (size_t i = 0; i < ranks.size(); ++i) {
      out.rank_perf[static_cast<size_t>(ranks[i])] += option.shards[i].perf.total();
      out.rank_storage[static_cast<size_t>(ranks[i])] += option.shards[i].storage;
    }
  }
  out.chosen = best.options;
  out.perf_rating = best.rating;
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

void Topology::validate() const {
  const auto bad = [](const std::string& text) { throw PlannerError(PlannerError::Kind::kBadInput, text); };
  if (compute_device != "cpu" && compute_device != "cuda" && compute_device != "hip") {
    bad(cat("unsupported compute device \"", compute_device, "\"; known are cpu, cuda and hip"));
  }
  if (world_size < 1 || local_world_size < 1 || world_size % local_world_size != 0) {
    bad(cat("a world of ", world_size, " ranks cannot have ", local_world_size, " ranks on every host"));
  }
  if (hbm_cap < 0 || ddr_cap < 0 || ssd_cap < 0) bad("a rank's memory cannot be negative");
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

EmbeddingShardingPlanner::EmbeddingShardingPlanner(const Runtime& runtime, PlannerOptions options)
    : runtime_(runtime), options_(std::move(options)) {
  options_.topology.validate();
}

EmbeddingShardingPlanner::~EmbeddingShardingPlanner() = default;

ReservedStorage EmbeddingShardingPlanner::reserve(const std::vector<PlannerModule>& modules) const {
  return reserve_storage(modules, tables_in_search_order(modules, options_), options_);
}

SearchSpace EmbeddingShardingPlanner::enumerate(const std::vector<PlannerModule>& modules) const {
  Sharders sharders(runtime_, options_.topology);
  return enumerate_options(tables_in_search_order(modules, options_), options_, sharders,
                           runtime_.ids(TSR_SHARDER_KIND));
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
  out.space = enumerate(modules);
  if (out.space.tables() == 0) return out;

  GreedyPartitioner partitioner(topology, out.reserved.available);
  std::optional<Best> best;
  Failures failures;
  std::vector<const ShardingOption*> proposal(out.space.tables());
  propose_all(out.space, options_.max_grid_search_proposals, [&](const std::vector<size_t>& options) {
    ++out.num_proposals;
    for (size_t t = 0; t < options.size(); ++t) proposal[t] = &out.space.options[options[t]];
    if (partitioner.run(proposal)) {
      ++out.num_plans;
      if (best && best->rating <= partitioner.perf_rating()) return;
      const std::span<const int> ranks = partitioner.all_ranks();
      best = Best{options, {ranks.begin(), ranks.end()}, partitioner.perf_rating()};
      return;
    }
    Storage total;
    for (const ShardingOption* option : proposal) total += option->total_storage;
    if (!failures.least || total < *failures.least) failures.least = total;
    failures.example = describe(*proposal[partitioner.failure().table], partitioner.failure());
  });
  if (!best) no_plan(options_, out.reserved.available, failures, out.num_proposals);
  fill_plan(*best, out);
  return out;
}

}  // namespace tessera
