// tessera/sharding.h - the location of every row and column of every table: the machines (Topology), the plan, and
// shardings that the caller chooses without a planner.
//
//   const Topology topology = Topology::of(2);
//   auto plan = construct_module_sharding_plan(runtime, tables,
//                                              {{"film", row_wise()}, {"user", table_wise(1)}}, topology);
//
// Sizes are bytes, bandwidths bytes per millisecond.
#pragma once

#include <dlpack/dlpack.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/embedding_configs.h"
#include "tessera/error.h"

namespace tessera {

class Runtime;

// Bytes that a transport sends for `elements` float32 of rows, or of their gradients, between two ranks. Rows have
// `row_elements` elements (0: several widths). Null: 4 bytes each. wire_bytes_of() in step_figures.h makes
// such functions for groups and transports.
using WireBytes = std::function<int64_t(bool gradients, int64_t elements, int64_t row_elements)>;

// comm.join_exchanges: small messages of the exchanges of a step are joined, first inside rows of a grid of the ranks
// (docs/scale.md). kAuto: in worlds of more than 16 ranks, as long as no two ranks have more than 8 KiB for each other.
enum class JoinExchanges { kAuto, kAlways, kNever };
// The rule for a step's exchanges of headers and ids, and the one for rows and gradients. Rows are not joined if they
// may be lossy, because they would be coded twice, and not on a device.
struct Joins {
  JoinExchanges ids = JoinExchanges::kAuto, rows = JoinExchanges::kAuto;
};

// Bytes on one rank or of one shard: device memory, host memory, disk. Compared in this order.
struct Storage {
  int64_t hbm = 0;
  int64_t ddr = 0;
  int64_t ssd = 0;
  auto operator<=>(const Storage&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
  bool fits_in(const Storage& room) const { return hbm <= room.hbm && ddr <= room.ddr && ssd <= room.ssd; }
  Storage& operator+=(const Storage& other);  // saturates at the largest int64
  Storage& operator-=(const Storage& other);
  std::string str() const;  // "hbm 1.2 GiB, ddr 0 B"
};

// The device of a rank's tables, as a device component describes it (abi/draft/device.h).
struct ComputeDevice {
  std::string id = "cpu";                           // of the component: "cuda", "hip", "acme"
  int32_t type = kDLCPU;                            // DLDeviceType
  int64_t memory = 0;                               // bytes; 0: unknown
  double memory_bandwidth = 0, link_bandwidth = 0;  // bytes per millisecond; 0: unknown

  // cpu, cuda or hip, even if this host has no such device. PlannerError(kBadInput): any other id; compute_device() in
  // planner.h asks its component.
  static ComputeDevice named(const std::string& id);
};

// The machines. All ranks are alike except in the lists. Rank r is on host r / local_world_size.
struct Topology {
  int world_size = 1;
  int local_world_size = 1;            // ranks per host; divides world_size
  std::string compute_device = "cpu";  // ComputeDevice::id
  int32_t device_type = kDLCPU;        // ComputeDevice::type
  int64_t hbm_cap = 0;                 // per rank
  int64_t ddr_cap = 137438953472;
  int64_t ssd_cap = 2199023255552;
  std::vector<int64_t> hbm_caps;      // if ranks differ: one entry per rank instead of hbm_cap
  std::vector<int64_t> ddr_caps;      // the same for ddr_cap
  std::vector<int64_t> ssd_caps;      // the same for ssd_cap
  std::string ddr_note;               // source of the ddr figure, for people; empty: the caller
  std::string ssd_note;               // the same for ssd
  double hbm_mem_bw = 963146416.128;  // this one and intra_host_bw: 0 if unknown
  double ddr_mem_bw = 54760833.024;
  double ssd_mem_bw = 104857.6;
  double hbm_to_ddr_mem_bw = 34359738.368;
  double intra_host_bw = 644245094.4;
  double inter_host_bw = 13421772.8;
  double bwd_compute_multiplier = 2;
  double weighted_feature_bwd_compute_multiplier = 1;

  // TorchRec's defaults for cpu, cuda and hip; hbm_cap is 32 GiB on these accelerators and 0 on the CPU. For other
  // devices, memory and bandwidths come from their component; 0: unknown. local_world_size 0 means one host.
  static Topology of(int world_size, int local_world_size = 0, const std::string& compute_device = "cpu");
  static Topology of(int world_size, int local_world_size, const ComputeDevice& device);
  // Takes one number for all ranks or one for each; empty or 0 leaves the default. PlannerError(kBadInput): otherwise.
  void set_memory_gib(const std::vector<double>& hbm, const std::vector<double>& ddr,
                      const std::vector<double>& ssd = {});
  static bool leaves_open(const std::vector<double>& gib);  // true if set_memory_gib() would leave some rank's default
  Storage memory(int rank) const;
  int hosts() const { return world_size / local_world_size; }
  bool accelerator() const { return device_type != kDLCPU; }  // rows are in hbm
  bool well_known() const;                                    // TorchRec's defaults cover such a device
  void validate() const;                                      // PlannerError(kBadInput)
};

// A rectangle of a table on a rank. sizes = [rows, columns], offsets = [first row, first column].
struct ShardMetadata {
  int64_t rows = 0, cols = 0;
  int64_t row = 0, col = 0;
  int rank = 0;
  bool replicated = false;  // every rank has a shard of these rows, and the table's other rows are split
  bool operator==(const ShardMetadata&) const = default;
};

// The sharding of one table. The core only needs `combine` and the shards to run it; `sharding_type` names the sharder
// that made it.
struct ParameterSharding {
  enum class Combine { kConcat = 0, kSum = 1, kHostSum = 2, kDataParallel = 3 };  // TSR_COMBINE_*
  std::string sharding_type;                                                      // "row_wise": a sharder's id
  std::string compute_kernel;                                                     // "fused", "dense", ...
  Combine combine = Combine::kConcat;
  bool routed = false;                // the sharder's route() finds rows, not ranges
  std::vector<ShardMetadata> shards;  // in the layout's order; kDataParallel: one full table per rank
  int64_t cookie = 0;                 // tells route() which of the sharder's layouts this is (tsr_layout)
  std::vector<int> ranks() const;     // one per shard
  bool is_replicated(size_t shard) const { return combine == Combine::kDataParallel || shards[shard].replicated; }
  std::vector<size_t> distinct() const;  // the shards that make up the table: the first of replicated ones
  bool operator==(const ParameterSharding&) const = default;
};

// Table name -> sharding, in table order.
class EmbeddingModuleShardingPlan {
 public:
  void add(const std::string& table, ParameterSharding sharding);
  const ParameterSharding& at(const std::string& table) const;  // kNotFound names the table
  bool contains(const std::string& table) const;
  const std::vector<std::pair<std::string, ParameterSharding>>& tables() const { return tables_; }
  bool operator==(const EmbeddingModuleShardingPlan&) const = default;

 private:
  std::vector<std::pair<std::string, ParameterSharding>> tables_;
  std::map<std::string, size_t> index_;  // of a name in tables_
};

// Module path -> plan, in the order of planning.
struct ShardingPlan {
  int world_size = 1;
  int local_world_size = 1;
  std::string compute_device = "cpu";  // for placements in the text forms: "rank:0/cuda:0"
  std::string model_hash;              // hash of the tables that it was made for (planner.h); empty: unknown
  std::vector<std::string> sharders;   // ids of the sharders that were tried; empty: unknown
  std::vector<std::pair<std::string, EmbeddingModuleShardingPlan>> modules;

  const EmbeddingModuleShardingPlan& at(const std::string& path) const;  // kNotFound
  std::string str() const;  // TorchRec 1.9's tables (tests/conformance/SHARDING.md section 8)
  // The sharding tutorial's line for one module: a Python dictionary with the old names of kernels.
  std::string tutorial(const std::string& path) const;
  std::string placement(int rank) const;                   // "rank:3/cuda:1", "rank:3/cpu"
  std::string json() const;                                // the file format: docs/plans.md
  static ShardingPlan from_json(const std::string& text);  // kInvalidArgument names what is wrong
  bool operator==(const ShardingPlan&) const = default;
};

struct ShardingRequest {
  std::string sharding_type;   // a sharder's id
  std::string compute_kernel;  // empty: "dense" for data-parallel tables, otherwise "fused"
  // Ranks for the layout's placement; empty: from rank 0 (or host 0) on.
  //   any rank:   shard i goes to ranks[i % size]
  //   every rank: only all ranks in order
  //   in a host:  ranks of one host; a single one stands for its whole host
  //   hosts:      any rank of each host, in the wanted order
  std::vector<int> ranks;
  int64_t min_partition = 0;  // least width of a column shard; 0: the sharder's default
  int64_t pieces = 0;         // for column splits: this many of equal width, or an error; 0: the sharder chooses
};

// TorchRec's names (torchrec.distributed.sharding_plan).
ShardingRequest table_wise(int rank);
ShardingRequest row_wise();
ShardingRequest column_wise(std::vector<int> ranks);  // one shard per entry
ShardingRequest table_row_wise(int host, const Topology& topology);
ShardingRequest table_column_wise(std::vector<int> ranks);  // of one host, one shard per entry
ShardingRequest grid_shard(const std::vector<int>& hosts, const Topology& topology);  // one block per host
ShardingRequest data_parallel();

// kInvalidArgument: the ranks do not suit the layout. kNotFound: an unknown sharder. kFailedPrecondition: the sharder
// cannot cut this table.
ParameterSharding make_sharding(const Runtime& runtime, const EmbeddingBagConfig& table, const ShardingRequest& request,
                                const Topology& topology);

// Every table must have a request.
EmbeddingModuleShardingPlan construct_module_sharding_plan(const Runtime& runtime,
                                                           const std::vector<EmbeddingBagConfig>& tables,
                                                           const std::map<std::string, ShardingRequest>& requests,
                                                           const Topology& topology);

// Completes a sharding from elsewhere (type, kernel, rectangles, ranks): sets combine and routed as the sharder of that
// type does, and gives data-parallel tables their shards (one full table per rank). kInvalidArgument: the rectangles do
// not tile the table, or a rank is outside the world.
ParameterSharding completed(const Runtime& runtime, const EmbeddingBagConfig& table, ParameterSharding sharding,
                            const Topology& topology);

}  // namespace tessera
