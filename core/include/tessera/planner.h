// tessera/planner.h - which sharder, which compute kernel and which ranks for every table of a model.
//
//   EmbeddingShardingPlanner planner(runtime, {.topology = Topology::of(8, 4, "cuda")});
//   PlanResult result = planner.plan({{.path = "sparse", .tables = tables}});
//   puts(result.report().c_str());
//
// Talks to nobody, and on equal input gives equal output in every process unless PlannerOptions::time_limit_s cuts the
// search short. Candidate layouts come from the sharder plugins; what they cost is TorchRec 1.9's model (formulas:
// tests/conformance/SHARDING.md sections 3 to 8, reproduced to the last bit). Sizes are bytes, times milliseconds,
// bandwidths bytes per millisecond.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/error.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"
#include "tessera/sharding_plan.h"

namespace tessera {

// Bytes on one rank, or of one shard: device memory, host memory, disk. Compared in this order.
struct Storage {
  int64_t hbm = 0;
  int64_t ddr = 0;
  int64_t ssd = 0;
  auto operator<=>(const Storage&) const = default;
  bool fits_in(const Storage& room) const { return hbm <= room.hbm && ddr <= room.ddr && ssd <= room.ssd; }
  Storage& operator+=(const Storage& other);  // stays at the largest int64 rather than overflow
  Storage& operator-=(const Storage& other);
  std::string str() const;  // "hbm 1.2 GiB, ddr 0 B"
};

// Predicted time of one shard, or of all shards of a rank, in one training step.
struct Perf {
  double fwd_compute = 0;
  double fwd_comms = 0;
  double bwd_compute = 0;
  double bwd_comms = 0;
  double prefetch_compute = 0;
  double input_dist_comms = 0;  // reported, no part of the total
  double total() const { return fwd_compute + bwd_compute + fwd_comms + bwd_comms + prefetch_compute; }
  Perf& operator+=(const Perf& other);
  bool operator==(const Perf&) const = default;
};

// The machines. All ranks are alike, the lists aside; rank r is on host r / local_world_size.
struct Topology {
  int world_size = 1;
  int local_world_size = 1;            // ranks per host; divides world_size
  std::string compute_device = "cpu";  // cpu, cuda or hip
  int64_t hbm_cap = 0;                 // per rank
  int64_t ddr_cap = 137438953472;
  int64_t ssd_cap = 2199023255552;
  std::vector<int64_t> hbm_caps;  // where ranks differ: one entry per rank instead of hbm_cap
  std::vector<int64_t> ddr_caps;  // the same for ddr_cap
  std::string ddr_note;           // where the figure for ddr comes from, for errors; empty: from the caller
  double hbm_mem_bw = 963146416.128;
  double ddr_mem_bw = 54760833.024;
  double ssd_mem_bw = 104857.6;
  double hbm_to_ddr_mem_bw = 34359738.368;
  double intra_host_bw = 644245094.4;
  double inter_host_bw = 13421772.8;
  double bwd_compute_multiplier = 2;
  double weighted_feature_bwd_compute_multiplier = 1;

  // TorchRec's defaults; hbm_cap is 32 GiB on an accelerator and 0 on the CPU. local_world_size 0: one host.
  static Topology of(int world_size, int local_world_size = 0, const std::string& compute_device = "cpu");
  // One number for all ranks, or one for each; empty or 0 leaves the default. PlannerError(kBadInput).
  void set_memory_gib(const std::vector<double>& hbm, const std::vector<double>& ddr);
  Storage memory(int rank) const;
  int hosts() const { return world_size / local_world_size; }
  bool accelerator() const { return compute_device != "cpu"; }
  void validate() const;  // PlannerError(kBadInput)
};

// What the user knows or demands of one table.
struct ParameterConstraints {
  std::vector<std::string> sharding_types;      // allowed ones, order means nothing; empty: all but grid_shard
  std::vector<std::string> compute_kernels;     // allowed ones; empty: all
  int64_t min_partition = 0;                    // least width of a column shard; 0: the sharder's default
  int64_t max_shards = 0;                       // 0: no limit
  std::vector<int> ranks;                       // where shards may live; empty: anywhere
  std::vector<int> forbidden_ranks;             // where they may not
  std::string keep_together;                    // a group: its tables are cut into equally many shards, and share ranks
  std::vector<std::string> keep_apart;          // groups: no two tables of one have shards on a common rank
  std::vector<double> pooling_factors = {1.0};  // ids per bag, one entry per input (whatever the number of features)
  std::vector<double> num_poolings;             // bags per sample, one per input; empty: 1 each
  std::vector<double> batch_sizes;              // local batch, one per input; empty: the planner's batch_size each
  bool is_weighted = false;                     // ids come with weights; a module that says so itself prevails
  // The k-th most popular row is asked for in proportion to k^-zipf_exponent, and popular rows lie anywhere in the
  // table; 0: all alike. For the default cost model: popular rows stay in caches and are updated once for many ids.
  double zipf_exponent = 0;
};

// The zipf_exponent under which `ids` ids of a table have so many different rows, from 0 to 3.
double zipf_exponent_of(int64_t rows, double ids, double distinct);

// A module of the model, as far as planning needs it.
struct PlannerModule {
  enum class Kind { kEmbeddingBagCollection, kEmbeddingCollection, kDense };
  std::string path;  // "" is the root itself; otherwise attribute names below the root, "sparse.user"
  Kind kind = Kind::kEmbeddingBagCollection;
  std::vector<EmbeddingBagConfig> tables;
  int64_t dense_bytes = 0;  // kDense: of its parameters
  // Whether ids come with weights, for all its tables, whatever their constraints say; unset: the constraints count.
  // TorchRec's planner knows it of an EmbeddingBagCollection.
  std::optional<bool> is_weighted = std::nullopt;
};

// Memory that tables may not have.
struct StorageReservation {
  enum class Kind {
    kHeuristical,      // `percentage` of hbm, then room for dense parameters and for the input
    kFixedPercentage,  // `percentage` of hbm alone
  };
  Kind kind = Kind::kHeuristical;
  double percentage = 0.15;  // as a fraction
};
struct ReservedStorage {
  Storage available;  // per rank, what is left; where ranks differ, of the smallest
  std::vector<Storage> per_rank;
  Storage kjt;                   // per rank, for the input
  std::optional<Storage> dense;  // per rank, for dense parameters; unset where it was not asked for
};

// One rectangle of an option with its cost.
struct Shard {
  int64_t rows = 0, cols = 0;
  int64_t row = 0, col = 0;
  Storage storage;
  Perf perf;
};

// The shards of an option in the layout's order. Most of them are alike, so they are kept as runs: a thousand options
// for hundreds of ranks stay small.
class Shards {
 public:
  // `count` shards of equal size and cost; each begins row_step rows and col_step columns behind the one before.
  struct Run {
    Shard first;
    size_t begin = 0;  // index of the first
    size_t count = 0;
    int64_t row_step = 0, col_step = 0;
    double load = 0;  // perf.total() of each
  };

  void push_back(const Shard& shard);
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Shard operator[](size_t i) const;
  const Run& run_of(size_t i) const;
  std::span<const Run> runs() const { return runs_; }

 private:
  std::vector<Run> runs_;
  size_t size_ = 0;
};

// One way to shard one table: a layout of a sharder with a compute kernel.
struct ShardingOption {
  std::string path;  // of the module
  std::string name;  // of the table
  std::string sharding_type;
  std::string compute_kernel;
  int32_t placement = 0;  // TSR_PLACE_*
  ParameterSharding::Combine combine = ParameterSharding::Combine::kConcat;
  bool routed = false;
  bool is_pooled = true;
  bool is_weighted = false;
  std::vector<double> input_lengths;
  std::vector<bool> allowed_ranks;  // one per rank; empty: all
  std::vector<int> apart;           // groups of which no two tables may share a rank
  Shards shards;
  Storage total_storage;             // over the shards
  double total_perf = 0;             // sum of the shards' totals
  double largest_perf = 0;           // largest total of a shard
  const char* partition_by() const;  // "device", "host", "uniform", "multi_host"
};

// Options of one table follow each other. Tables are in search order.
struct SearchSpace {
  std::vector<ShardingOption> options;
  std::vector<size_t> first;                  // of table t: [first[t], first[t + 1])
  std::vector<std::vector<size_t>> together;  // tables that share their ranks, shard by shard
  size_t narrowed = 0;                        // tables of which the time limit left options out
  size_t tables() const { return first.empty() ? 0 : first.size() - 1; }
};

// Why a proposal could not be partitioned: the first shard for which no rank had room.
struct PartitionFailure {
  size_t table = 0;  // index into the proposal
  size_t shard = 0;
  int rank = 0;     // where least was missing
  Storage missing;  // there
};
struct Partition {
  std::optional<PartitionFailure> failure;
  std::vector<std::vector<int>> ranks;  // per table, per shard
  double perf_rating = 0;               // the busiest rank's time; lower is better
};
// TorchRec's greedy partitioner (section 7) for one option per table.
Partition greedy_partition(std::span<const ShardingOption* const> proposal, const Topology& topology,
                           const Storage& available);

// No plan, or nothing to plan with.
class PlannerError : public Error {
 public:
  enum class Kind {
    kBadInput,             // kInvalidArgument; TorchRec: AssertionError
    kNoOption,             // kInvalidArgument; a table is left without sharding type and kernel; RuntimeError
    kInsufficientStorage,  // kResourceExhausted; PlannerError
    kStrictConstraints,    // kFailedPrecondition; it would fit, but not under these constraints; PlannerError
  };
  PlannerError(Kind kind, const std::string& message, int64_t num_proposals = 0);
  Kind kind() const { return kind_; }
  int64_t num_proposals() const { return num_proposals_; }  // tried before giving up
  std::string torchrec_class() const;                       // "PlannerError", "RuntimeError", "AssertionError"
  std::string error_type() const;                           // "insufficient_storage", "strict_constraints", or empty

 private:
  Kind kind_;
  int64_t num_proposals_;
};

struct PlanResult {
  ShardingPlan plan;
  std::optional<double> perf_rating;  // of the busiest rank; unset without tables
  int64_t num_proposals = 0;          // different ones that were tried
  int64_t num_plans = 0;              // those that could be partitioned
  bool cut_short = false;             // the time limit ended the search; see also space.narrowed
  std::vector<double> rank_perf;      // time per rank
  std::vector<Storage> rank_storage;  // of shards, per rank
  Topology topology;
  ReservedStorage reserved;
  SearchSpace space;
  std::vector<size_t> chosen;  // per table: index into space.options

  // Tables for a person: ranks with bytes and time, tables with type, kernel and ranks.
  std::string report() const;
  // One table: its options with bytes and time, cheapest first, and which was taken. kNotFound names the tables.
  std::string explain(const std::string& table) const;
};

// How the best combination of options, and their ranks, are found.
enum class PlannerSearch {
  kBalanced,  // a few good combinations, packed and then improved shard by shard; never worse than kTorchrec where
              // trying its proposals costs little
  kTorchrec,  // TorchRec's proposers and greedy partitioner, proposal for proposal
};
PlannerSearch planner_search_from(const std::string& name);  // "balanced", "torchrec"; kInvalidArgument

struct PlannerOptions {
  Topology topology;
  int64_t batch_size = 512;                                 // per rank
  std::map<std::string, ParameterConstraints> constraints;  // by table name; names of absent tables are ignored
  StorageReservation storage_reservation;
  // TorchRec's limits: row_wise, table_row_wise and grid_shard only on accelerators, sequences only as data_parallel,
  // table_wise, column_wise and row_wise, sharders unknown to TorchRec not at all.
  bool torchrec_limits = false;
  // "torchrec": TorchRec 1.9's formulas over the topology's bandwidths (tests/conformance/SHARDING.md). "default": the
  // kernel plugins' estimates and the figures of `machine`; docs/calibration.md. kInvalidArgument for others.
  std::string cost_model = "default";
  std::optional<Machine> machine;  // unset: typical figures of the compute device
  std::string kernel = "auto";     // kernel plugin whose estimates count
  int64_t max_grid_search_proposals = 10000;
  PlannerSearch search = PlannerSearch::kBalanced;
  // For looking at shardings, for the search and, without a plan, for its explanation; 0: none. A plan that exists is
  // returned, made of what was looked at, and its report says so.
  double time_limit_s = 30;
  std::stop_token stop;  // ends the search as the time limit does
};

class EmbeddingShardingPlanner {
 public:
  // `runtime` outlives the planner.
  EmbeddingShardingPlanner(const Runtime& runtime, PlannerOptions options);
  ~EmbeddingShardingPlanner();

  // The best plan of all proposers. PlannerError; Error of a sharder that fails.
  PlanResult plan(const std::vector<PlannerModule>& modules) const;

  // The steps of plan(), for inspection.
  ReservedStorage reserve(const std::vector<PlannerModule>& modules) const;
  SearchSpace enumerate(const std::vector<PlannerModule>& modules) const;  // all of it, whatever time it takes
  const PlannerOptions& options() const { return options_; }

 private:
  const Runtime& runtime_;
  PlannerOptions options_;
};

struct Config;
struct TableConfig;
// What a config file says to the planner. `tables` as tables_of() gives them; `device` is cpu, cuda or hip. Memory that
// the config leaves open is the topology's default for hbm, and for ddr an equal part of what system_memory() has left.
PlannerOptions planner_options(const Config& config, const std::vector<TableConfig>& tables, int world_size,
                               int local_world_size, const std::string& device);
// The tables as a collection's configs, kernel and bounds aside.
std::vector<EmbeddingBagConfig> embedding_configs(const std::vector<TableConfig>& tables);

// A fingerprint of names, sizes, types and features of all tables: 16 hexadecimal digits. Goes into
// ShardingPlan::model_hash.
std::string model_hash(const std::vector<PlannerModule>& modules);
// Why `plan` is not for these modules, one line for each difference; empty when it fits.
std::string plan_mismatch(const ShardingPlan& plan, const std::vector<PlannerModule>& modules);

}  // namespace tessera
