// The shards on ranks while a partition is made and improved. The greedy partitioner (planner/greedy/partitioner.h)
// only adds tables; the board can also remove tables, and move and swap shards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/budget.h"
#include "planner/search.h"
#include "tessera/planner.h"

namespace tessera {

// The time of every rank under a solution, summed in the order of the tables.
std::vector<double> rank_loads(const SearchSpace& space, const Solution& solution, int world_size);

// All rules hold at every moment: memory, allowed ranks, groups that are kept apart, placements. A table is on the
// board with one of its options, or not at all.
class Board {
 public:
  struct Piece {
    size_t table;
    size_t shard;
  };
  enum class Prefer { kIdle, kRoomy };  // chooses the ranks with the least load, or those with the most free memory

  // `rooms` has an entry per rank. The arguments outlive the board.
  Board(const SearchSpace& space, const Topology& topology, const std::vector<Storage>& rooms, Budget& budget);

  void clear();
  void set(const Solution& solution);
  Solution solution() const;

  // Puts a table that is not on the board on the ranks that suit the option best. If there is no room, it returns false
  // and changes nothing.
  bool place(size_t table, size_t option, Prefer prefer = Prefer::kIdle);
  void put(size_t table, size_t option, const std::vector<int>& ranks);
  void take(size_t table);
  bool can_move(const Piece& piece, int rank) const;
  bool can_swap(const Piece& a, const Piece& b) const;
  void move(const Piece& piece, int rank);
  void swap(const Piece& a, const Piece& b);

  double load_of(const Piece& piece) const { return run_of(piece).load; }
  int rank_of(const Piece& piece) const { return ranks_[piece.table][piece.shard]; }
  size_t option_of(size_t table) const { return option_[table]; }
  const std::vector<int>& ranks_of(size_t table) const { return ranks_[table]; }
  bool movable(const Piece& piece) const;  // true if it may move without the other shards of its table
  // The shards on a rank, without those of tables in everywhere().
  std::span<const Piece> pieces(int rank) const { return pieces_[static_cast<size_t>(rank)]; }
  const std::vector<size_t>& everywhere() const { return everywhere_; }  // tables with one shard on every rank
  const std::vector<double>& loads() const { return load_; }
  void set_loads(const std::vector<double>& loads) { load_ = loads; }  // undoes the rounding of take() and put()
  // Why the last unsuccessful place() failed: the shard without room, and the rank that lacked least.
  const PartitionFailure& failure() const { return failure_; }

 private:
  const ShardingOption& option(size_t table) const { return space_.options[option_[table]]; }
  const Shards::Run& run_of(const Piece& piece) const { return option(piece.table).shards.run_of(piece.shard); }
  bool allowed(size_t table, int rank) const;
  bool fits(size_t table, const Storage& storage, int rank) const;
  bool place_anywhere(size_t table, Prefer prefer, int first_rank, int num_ranks);
  bool place_everywhere(size_t table);
  bool place_in_host(size_t table, Prefer prefer);
  bool place_in_order(size_t table);
  double cost_in_order(size_t table, size_t begin, size_t end, int host) const;
  void add(size_t table, size_t shard, const Shards::Run& run, int rank);
  void remove(size_t table, size_t shard, const Shards::Run& run);
  void note_failure(size_t table, size_t shard, const Storage& storage, int first_rank, int num_ranks);

  const SearchSpace& space_;
  const Topology& topology_;
  const std::vector<Storage>& rooms_;
  Budget& budget_;
  std::vector<double> load_;
  std::vector<Storage> free_;
  std::vector<size_t> option_;  // per table, or kNone
  std::vector<std::vector<int>> ranks_;
  std::vector<std::vector<Piece>> pieces_;
  std::vector<size_t> everywhere_;
  std::vector<size_t> owner_;  // [g * world_size + r]: the table of apart group g that has shards on rank r
  std::vector<int> owned_;     // [g * world_size + r]: the number of these shards
  PartitionFailure failure_;
  bool failed_ = false;
};

}  // namespace tessera
