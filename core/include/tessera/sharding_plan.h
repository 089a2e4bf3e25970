// tessera/sharding_plan.h - the location of every row and column of every table: printable, saved, reusable.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/error.h"

namespace tessera {

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
  std::string model_hash;              // of the tables that it was made for (planner.h); empty: unknown
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

}  // namespace tessera
