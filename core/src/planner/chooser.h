// Chooses one option per table: a small total time, no shard that is too slow, and together no more memory than there
// is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/budget.h"
#include "tessera/planner.h"

namespace tessera {

class Chooser {
 public:
  // `rooms` has an entry per rank. The arguments outlive the chooser.
  Chooser(const SearchSpace& space, const std::vector<Storage>& rooms, Budget& budget);

  // The first table without an option whose every shard fits some empty rank that it may use; tables() if all have one.
  size_t table_without_room() const { return without_room_; }

  // Chooses for each table the option with the least total time, among the options whose slowest shard takes at most
  // `most_ms`. If a table has none, it gets the option whose slowest shard is fastest. Memory has a price in time, the
  // same for all tables, which is raised until the tables fit into `share` of all memory.
  std::vector<size_t> choose(double most_ms, double share);
  // The value of most_ms for which the busiest rank of an even partition would be fastest.
  double best_limit(double share);
  // The options of a table that are worth a try, those that are cheapest at the last prices first. None is worse than
  // another in every way.
  std::vector<size_t> alternatives(size_t table) const;

 private:
  static constexpr size_t kMemories = 3;
  struct Choice {
    size_t option;
    double sum, largest;
    std::array<double, kMemories> bytes;     // bytes of all shards, for each kind of memory
    std::array<double, kMemories> of_shard;  // bytes of the largest shard
  };
  using Bytes = std::array<double, kMemories>;

  static Choice choice_of(const SearchSpace& space, size_t option);
  static bool worse(const Choice& a, const Choice& b);
  void add_table(const SearchSpace& space, size_t table);
  bool has_room(const ShardingOption& option) const;
  double cost(const Choice& c) const;
  void pick(double most_ms);
  void find_prices(double most_ms, double share);
  bool too_much(size_t memory, double share) const { return used_[memory] > all_[memory] * share; }

  const std::vector<Storage>& rooms_;
  Budget& budget_;
  std::vector<Choice> choices_;  // table t has [first_[t], first_[t + 1])
  std::vector<size_t> first_;
  Bytes all_{};                 // memory of all ranks
  Bytes price_{};               // milliseconds per byte
  Bytes used_{};                // memory that the last pick takes
  std::vector<size_t> picked_;  // indices into choices_
  size_t without_room_;
};

}  // namespace tessera
