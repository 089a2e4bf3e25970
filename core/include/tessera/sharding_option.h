// tessera/sharding_option.h - the options to shard each table that a planner chose from, with their bytes and times.
//
// Sizes are bytes, times milliseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/sharding.h"

namespace tessera {

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

// The shards of an option in the layout's order. Most are alike, so they are stored as runs, and a thousand options for
// hundreds of ranks stay small.
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

}  // namespace tessera
