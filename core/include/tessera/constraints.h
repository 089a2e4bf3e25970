// tessera/constraints.h - facts and demands about a table for the planner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace tessera
