// tessera/planner.h - chooses the sharder, the compute kernel and the ranks for every table of a model.
//
//   EmbeddingShardingPlanner planner(runtime, {.topology = Topology::of(8, 4, "cuda")});
//   PlanResult result = planner.plan({{.path = "sparse", .tables = tables}});
//   puts(result.report().c_str());
//
// Planning communicates with nobody. Equal input gives equal output in every process, unless
// PlannerOptions::time_limit_s ends the search. Sharder plugins give the candidate layouts, and
// PlannerOptions::cost_model their costs. Sizes are bytes, times milliseconds. topology.h and sharding_option.h are the
// rest of the planner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/error.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"
#include "tessera/sharding_option.h"

namespace tessera {

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
  Storage available;  // per rank, what is left; if ranks differ, on the smallest
  std::vector<Storage> per_rank;
  Storage kjt;                   // per rank, for the input
  std::optional<Storage> dense;  // per rank, for dense parameters; unset: not reserved
};

// There is no plan, or nothing to plan with.
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
  // Unset: typical figures of cpu, cuda or hip, or those of another device's component; kFailedPrecondition: that has
  // none.
  std::optional<Machine> machine;
  std::optional<LinkFigures> network;  // between hosts, instead of the figures of `machine`
  std::string kernel = "auto";         // kernel plugin whose estimates are used
  WireBytes wire = nullptr;            // of the transport; the cost model "torchrec" does not use it
  int64_t max_grid_search_proposals = 10000;
  PlannerSearch search = PlannerSearch::kBalanced;
  // Limits the time to look at shardings, to search, and to explain why there is no plan; 0: none. After the limit, the
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
