// tessera/planner.h - chooses the sharder, the compute kernel and the ranks for every table of a model.
//
//   EmbeddingShardingPlanner planner(runtime, {.topology = Topology::of(8, 4, "cuda")});
//   PlanResult result = planner.plan({{.path = "sparse", .tables = tables}});
//   puts(result.report().c_str());
//
// Planning communicates with nobody. Equal input gives equal output in every process, unless
// PlannerOptions::time_limit_s ends the search. Sharder plugins give the candidate layouts, and
// PlannerOptions::cost_model their costs. Sizes are bytes, times milliseconds.
#pragma once

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
#include "tessera/sharding.h"

namespace tessera {

// Sharding options: the ways to shard each table, from which the planner chooses.

// Estimated time of one shard, or of all shards of a rank, in one training step.
struct Perf {
  double fwd_compute = 0;
  double fwd_comms = 0;
  double bwd_compute = 0;
  double bwd_comms = 0;
  double prefetch_compute = 0;
  double input_dist_comms = 0;  // reported, but not in the total
  double storage_reads = 0;     // not a time: rows read from disk per step
  double total() const { return fwd_compute + bwd_compute + fwd_comms + bwd_comms + prefetch_compute; }
  Perf& operator+=(const Perf& other);
  bool operator==(const Perf&) const = default;
};

// One rectangle of an option with its cost.
struct Shard {
  int64_t rows = 0, cols = 0;
  int64_t row = 0, col = 0;
  Storage storage;
  Perf perf;
};

// The shards of an option in the layout's order. Most are alike, so they are stored as runs, which keeps a thousand
// options for hundreds of ranks small.
class Shards {
 public:
  // `count` shards of equal size and cost. Each begins row_step rows and col_step columns after the previous one.
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

// One way to shard one table: a sharder's layout with a compute kernel.
struct ShardingOption {
  std::string path;  // of the module
  std::string name;  // of the table
  std::string sharding_type;
  std::string compute_kernel;
  int32_t placement = 0;  // TSR_PLACE_*
  ParameterSharding::Combine combine = ParameterSharding::Combine::kConcat;
  bool routed = false;
  int64_t cookie = 0;                               // the layout's
  size_t first_replicated = 0, num_replicated = 0;  // shards of replicated rows (ShardMetadata::replicated)
  bool is_pooled = true;
  bool is_weighted = false;
  std::vector<double> input_lengths;
  std::vector<bool> allowed_ranks;  // one per rank; empty: all
  std::vector<int> apart;           // groups whose tables may not share a rank
  Shards shards;
  Storage total_storage;             // over the shards
  double distinct_ids = 1;           // share of a batch's ids that travel; 1: repeated rows do not travel once
  double total_perf = 0;             // sum of the shards' totals
  double largest_perf = 0;           // largest total of a shard
  const char* partition_by() const;  // "device", "host", "uniform", "multi_host"
};

// Options of one table are adjacent. Tables are in search order.
struct SearchSpace {
  std::vector<ShardingOption> options;
  std::vector<size_t> first;                  // options of table t are [first[t], first[t + 1])
  std::vector<std::vector<size_t>> together;  // tables that share their ranks, shard by shard
  size_t narrowed = 0;                        // number of tables that lost options to the time limit
  std::vector<std::string> sharders;          // ids of sharders that were asked about at least one table
  std::string figures;                        // the source of the options' times
  size_t tables() const { return first.empty() ? 0 : first.size() - 1; }
};

// The input of a planner, and its result.

// Facts and demands of the user about one table.
struct ParameterConstraints {
  // Allowed sharding types, in any order; empty: all installed ones except those that must be asked for.
  std::vector<std::string> sharding_types;
  std::vector<std::string> compute_kernels;  // allowed compute kernels, "name?key=1|2" allows both values; empty: all
  int64_t min_partition = 0;                 // least width of a column shard; 0: the sharder's default
  int64_t max_shards = 0;                    // 0: no limit
  std::vector<int> ranks;                    // ranks that may have shards; empty: any
  std::vector<int> forbidden_ranks;          // ranks that may not
  std::string keep_together;                 // name of a group: its tables get equally many shards, and share ranks
  std::vector<std::string> keep_apart;       // groups: no two tables of one group have shards on the same rank
  std::vector<double> pooling_factors = {1.0};  // ids per bag, one entry per input (whatever the number of features)
  std::vector<double> num_poolings;             // bags per sample, one per input; empty: 1 each
  std::vector<double> batch_sizes;              // local batch, one per input; empty: the planner's batch_size each
  bool is_weighted = false;                     // ids have weights; a module's own setting prevails
  // The k-th most popular row is looked up in proportion to k^-zipf_exponent, and popular rows are anywhere in the
  // table; 0: all rows are equal. The default cost model uses it, because popular rows stay in caches and are updated
  // once for many ids.
  double zipf_exponent = 0;
};

// Estimates the zipf_exponent, from 0 to 3, for which `ids` ids of a table have `distinct` different rows.
double zipf_exponent_of(int64_t rows, double ids, double distinct);

// The part of a model's module that planning needs.
struct PlannerModule {
  enum class Kind { kEmbeddingBagCollection, kEmbeddingCollection, kDense };
  std::string path;  // "" is the root; otherwise attribute names below the root, "sparse.user"
  Kind kind = Kind::kEmbeddingBagCollection;
  std::vector<EmbeddingBagConfig> tables;
  int64_t dense_bytes = 0;  // for kDense: size of its parameters
  // True if ids of all its tables have weights, whatever their constraints say; unset: the constraints count.
  // TorchRec's planner takes it from an EmbeddingBagCollection.
  std::optional<bool> is_weighted = std::nullopt;
};

// Memory that tables may not use.
struct StorageReservation {
  enum class Kind {
    kHeuristical,      // `percentage` of hbm, and memory for dense parameters and the input
    kFixedPercentage,  // only `percentage` of hbm
  };
  Kind kind = Kind::kHeuristical;
  double percentage = 0.15;  // as a fraction
};
struct ReservedStorage {
  Storage available;  // per rank, for tables; if ranks differ, the smallest rank's
  std::vector<Storage> per_rank;
  Storage kjt;                   // per rank, for the input
  std::optional<Storage> dense;  // per rank, for dense parameters; unset: not reserved
};

// Thrown if there is no plan, or if the input is invalid.
class PlannerError : public Error {
 public:
  enum class Kind {
    kBadInput,             // kInvalidArgument; TorchRec: AssertionError
    kNoOption,             // kInvalidArgument; a table has no sharding type and kernel left; RuntimeError
    kInsufficientStorage,  // kResourceExhausted; PlannerError
    kStrictConstraints,    // kFailedPrecondition; it would fit without these constraints; PlannerError
  };
  PlannerError(Kind kind, const std::string& message, int64_t num_proposals = 0);
  Kind kind() const { return kind_; }
  int64_t num_proposals() const { return num_proposals_; }  // tried before it gave up
  std::string torchrec_class() const;                       // "PlannerError", "RuntimeError", "AssertionError"
  std::string error_type() const;                           // "insufficient_storage", "strict_constraints", or empty

 private:
  Kind kind_;
  int64_t num_proposals_;
};

struct PlanResult {
  ShardingPlan plan;
  std::optional<double> perf_rating;  // of the busiest rank; unset: no tables
  int64_t num_proposals = 0;          // number of different ones tried
  int64_t num_plans = 0;              // number of those that could be partitioned
  bool cut_short = false;             // the time limit ended the search; see also space.narrowed
  std::vector<double> rank_perf;      // time per rank
  std::vector<Storage> rank_storage;  // of shards, per rank
  Topology topology;
  ReservedStorage reserved;
  SearchSpace space;
  std::vector<size_t> chosen;  // for each table an index into space.options

  // Tables for people: ranks with bytes and time, tables with type, kernel and ranks.
  std::string report() const;
  // Explains one table: its options with bytes and time, cheapest first, and the chosen one. kNotFound lists the
  // tables.
  std::string explain(const std::string& table) const;
};

// The search for the best combination of options and ranks.
enum class PlannerSearch {
  // A few good combinations are packed and then improved shard by shard. Never worse than kTorchrec if trying its
  // proposals costs little.
  kBalanced,
  kTorchrec,  // TorchRec's proposers and greedy partitioner, with the same proposals
};
PlannerSearch planner_search_from(const std::string& name);  // "balanced", "torchrec"; kInvalidArgument

struct PlannerOptions {
  Topology topology;
  int64_t batch_size = 512;                                 // per rank
  std::map<std::string, ParameterConstraints> constraints;  // by table name; names of absent tables are ignored
  StorageReservation storage_reservation;
  // Applies TorchRec's limits: row_wise, table_row_wise and grid_shard only on accelerators; sequences only
  // data_parallel, table_wise, column_wise and row_wise; no sharders that TorchRec does not know.
  bool torchrec_limits = false;
  // "torchrec": TorchRec 1.9's formulas over the topology's bandwidths (tests/conformance/SHARDING.md). "default": the
  // kernel plugins' estimates and the figures of `machine` (docs/calibration.md). kInvalidArgument: anything else.
  std::string cost_model = "default";
  // Unset: typical figures of cpu, cuda or hip, or the figures that another device's component gives. Fails with
  // kFailedPrecondition if it gives none.
  std::optional<Machine> machine;
  std::optional<LinkFigures> network;  // between hosts, instead of the figures of `machine`
  std::string kernel = "auto";         // kernel plugin whose estimates are used
  WireBytes wire = nullptr;            // bytes that the transport sends; not used by the cost model "torchrec"
  Joins joins;                         // exchanges that are joined; not used by the cost model "torchrec"
  int64_t max_grid_search_proposals = 10000;
  PlannerSearch search = PlannerSearch::kBalanced;
  // Limits the time to list options, to search, and to explain why there is no plan; 0: no limit. After the limit, the
  // best plan so far is returned, and its report says so.
  double time_limit_s = 30;
  std::stop_token stop;  // ends the search like the time limit
};

class EmbeddingShardingPlanner {
 public:
  // `runtime` must outlive the planner.
  EmbeddingShardingPlanner(const Runtime& runtime, PlannerOptions options);
  ~EmbeddingShardingPlanner();

  // Returns the best plan of all proposers. Throws PlannerError, or the Error of a failing sharder.
  PlanResult plan(const std::vector<PlannerModule>& modules) const;

  const PlannerOptions& options() const { return options_; }

 private:
  const Runtime& runtime_;
  PlannerOptions options_;
};

// The device of a stream's tables; null: host memory. Errors are those of the device component.
ComputeDevice compute_device(const std::shared_ptr<DeviceStream>& stream);
// The device of that id: ComputeDevice::named(), or the description by this host's device component. Errors are those
// of Runtime::create().
ComputeDevice compute_device(const Runtime& runtime, const std::string& id);

struct Config;
struct TableConfig;
// The planner's options in a config file. `tables` come from tables_of(). Unset memory sizes get defaults: the
// topology's for hbm, an equal part of the host's free memory for ddr, and an equal part of the free space in
// /var/tmp for ssd.
PlannerOptions planner_options(const Config& config, const std::vector<TableConfig>& tables, int world_size,
                               int local_world_size, const ComputeDevice& device);
// The tables as a collection's configs, without kernel and bounds.
std::vector<EmbeddingBagConfig> embedding_configs(const std::vector<TableConfig>& tables);

// A fingerprint of names, sizes, types and features of all tables: 16 hexadecimal digits, for ShardingPlan::model_hash.
std::string model_hash(const std::vector<PlannerModule>& modules);
// Lists the differences between `plan` and these modules, one line each; empty: it fits.
std::string plan_mismatch(const ShardingPlan& plan, const std::vector<PlannerModule>& modules);

}  // namespace tessera
