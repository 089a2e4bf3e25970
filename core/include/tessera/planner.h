// tessera/planner.h - which sharder, which compute kernel and which ranks for every table of a model.
//
//   EmbeddingShardingPlanner planner(runtime, {.topology = Topology::of(8, 4, "cuda")});
//   PlanResult result = planner.plan({{.path = "sparse", .tables = tables}});
//   puts(result.report().c_str());
//
// Talks to nobody, and on equal input gives equal output in every process unless PlannerOptions::time_limit_s cuts the
// search short. Candidate layouts come from the sharder plugins; what they cost says PlannerOptions::cost_model. Sizes
// are bytes, times milliseconds. With topology.h, constraints.h and sharding_option.h this is all of the planner.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/constraints.h"
#include "tessera/embedding_configs.h"
#include "tessera/error.h"
#include "tessera/machine.h"
#include "tessera/runtime.h"
#include "tessera/sharding_option.h"
#include "tessera/sharding_plan.h"
#include "tessera/topology.h"
#include "tessera/wire_bytes.h"

namespace tessera {

// A module of the model, as far as planning needs it.
struct PlannerModule {
  enum class Kind { kEmbeddingBagCollection, kEmbeddingCollection, kDense };
  std::string path;  // "" is the root itself; otherwise attribute names below the root, "sparse.user"
  Kind kind = Kind::kEmbeddingBagCollection;
  std::vector<EmbeddingBagConfig> tables;
  int64_t dense_bytes = 0;  // kDense: of its parameters
  // True if ids come with weights, for all its tables, whatever their constraints say; unset: the constraints count.
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
  // Unset: typical figures of cpu, cuda or hip, or what another device's part says; kFailedPrecondition where that is
  // nothing.
  std::optional<Machine> machine;
  std::string kernel = "auto";  // kernel plugin whose estimates count
  WireBytes wire = nullptr;     // of the transport; the cost model "torchrec" does not ask
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

  const PlannerOptions& options() const { return options_; }

 private:
  const Runtime& runtime_;
  PlannerOptions options_;
};

// The device of a stream's tables; host memory for null. Errors of the device component.
ComputeDevice compute_device(const std::shared_ptr<DeviceStream>& stream);
// The device of that id: as ComputeDevice::named() has it, and otherwise as the device plugin here says.
// Runtime::create's errors.
ComputeDevice compute_device(const Runtime& runtime, const std::string& id);

struct Config;
struct TableConfig;
// The planner's part of a config file. `tables` as tables_of() gives them. Memory that the config leaves open is the
// topology's default for hbm, for ddr an equal part of what system_memory() has left, and for ssd of what /var/tmp has.
PlannerOptions planner_options(const Config& config, const std::vector<TableConfig>& tables, int world_size,
                               int local_world_size, const ComputeDevice& device);
// The tables as a collection's configs, kernel and bounds aside.
std::vector<EmbeddingBagConfig> embedding_configs(const std::vector<TableConfig>& tables);

// A fingerprint of names, sizes, types and features of all tables: 16 hexadecimal digits. Goes into
// ShardingPlan::model_hash.
std::string model_hash(const std::vector<PlannerModule>& modules);
// Why `plan` is not for these modules, one line for each difference; empty when it fits.
std::string plan_mismatch(const ShardingPlan& plan, const std::vector<PlannerModule>& modules);

}  // namespace tessera
