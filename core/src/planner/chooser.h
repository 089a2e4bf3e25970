// One option per table: little time in sum, no shard that is too slow, memory that suffices in sum.
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

  // The table whose every option has a shard that is larger than any rank it may use; tables() where there is none.
  size_t table_without_room() const { return without_room_; }

  // Chooses for each table the option with the least time in sum, among the options whose slowest shard takes at most
  // `most_ms`. If a table has none, it gets the option whose slowest shard is fastest. Memory has a price, the same for
  // all tables, which is raised until the tables fit into `share` of all memory.
  std::vector<size_t> choose(double most_ms, double share);
  // The limit for which the busiest rank of an even partition would be fastest.
  double best_limit(double share);
  // Options of a table worth a try, cheapest first at the last prices: none that is worse than another in every way.
  std::vector<size_t> alternatives(size_t table) const;

 private:
  static constexpr size_t kMemories = 3;
  struct Choice {
    size_t option;
    double sum, largest;
    std::array<double, kMemories> bytes;     // over all shards
    std::array<double, kMemories> of_shard;  // of the largest
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
  std::vector<Choice> choices_;  // of table t: [first_[t], first_[t + 1])
  std::vector<size_t> first_;
  Bytes all_{};                 // memory of all ranks
  Bytes price_{};               // milliseconds per byte
  Bytes used_{};                // by the last pick
  std::vector<size_t> picked_;  // indices into choices_
  size_t without_room_;
};

}  // namespace tessera
