// TorchRec's greedy partitioner (tests/conformance/SHARDING.md section 7), for many proposals one after the other.
// Unlike the board (planner/board.h), it never moves a shard. Its order of sums and ties is TorchRec's to the last bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/search.h"

namespace tessera::greedy {

// Keeps its memory between runs. The result of a run is valid until the next run.
class Partitioner {
 public:
  // `available` has one entry per rank.
  Partitioner(const Topology& topology, std::vector<Storage> available);

  // Returns false if some shard does not fit anywhere; failure() then says which.
  bool run(std::span<const ShardingOption* const> proposal);

  double perf_rating() const { return rating_; }
  const PartitionFailure& failure() const { return failure_; }
  std::span<const int> ranks(size_t table) const {
    return {ranks_.data() + first_[table], first_[table + 1] - first_[table]};
  }
  std::span<const int> all_ranks() const { return ranks_; }  // of the first table's shards, then of the second's, ...

 private:
  struct Rank {
    Storage free;
    Perf perf;
    double load = 0;
  };

  bool fits(size_t table, const Storage& storage, int rank) const;
  bool shares_with_none(size_t table, int rank) const;
  bool place_table(size_t table);
  bool place_uniform(size_t table);
  bool place_on_any(size_t table, int first_rank, int num_ranks);
  bool place_on_host(size_t table);
  bool place_on_hosts(size_t table);
  bool place_in_order(size_t table, std::span<const int> hosts);
  bool covers(int host, const Storage& needed) const;
  void sort_hosts();
  void put(size_t table, size_t shard, const Shards::Run& run, int rank);
  void save(int first_rank, int num_ranks);
  void restore(size_t table, int first_rank);
  void note_failure(size_t table, size_t shard, int first_rank, int num_ranks);
  void rate();

  Topology topology_;
  std::vector<Storage> available_;
  std::span<const ShardingOption* const> proposal_;
  std::vector<Rank> at_;  // per rank
  std::vector<Rank> saved_;
  std::vector<size_t> owner_;  // [g * world_size + r]: the table of apart group g on rank r, or kNobody
  std::vector<size_t> order_;  // tables that are not uniform, largest first
  std::vector<int> hosts_;     // ordered by load
  std::vector<double> host_load_;
  std::vector<double> rank_total_;  // for the rating
  std::vector<size_t> first_;       // index of each table's first shard in ranks_
  std::vector<int> ranks_;
  double rating_ = 0;
  bool failed_ = false;
  PartitionFailure failure_;
};

// A partition of one option per table, on ranks with equal memory.
struct Partition {
  std::optional<PartitionFailure> failure;
  std::vector<std::vector<int>> ranks;  // per table, per shard
  double perf_rating = 0;               // the busiest rank's time; lower is better
};
Partition partition(std::span<const ShardingOption* const> proposal, const Topology& topology,
                    const Storage& available);

}  // namespace tessera::greedy
