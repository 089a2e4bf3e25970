// tessera/constraints.h - what the user knows or demands of a table when it is planned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

// Facts and demands of the user about one table.
struct ParameterConstraints {
  // Allowed ones, order means nothing; empty: all that are installed, without those that want to be asked for.
  std::vector<std::string> sharding_types;
  std::vector<std::string> compute_kernels;     // allowed ones, "name?key=1|2" both; empty: all
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

}  // namespace tessera
