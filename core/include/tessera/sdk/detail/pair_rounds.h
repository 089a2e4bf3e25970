// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/detail/pair_rounds.h - which ranks talk to which in operations of log2(n) rounds.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace tessera::sdk {
inline namespace v1 {

// Everybody hears from everybody: in round k a rank sends what it has to the rank 2^k before it, and receives as much
// from the rank 2^k after it. Before round k it has what 2^k ranks sent, from itself on. (Bruck et al., "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", 1997.)
struct PairRounds {
  int32_t rank = 0, world = 1;

  int32_t count() const { return std::bit_width(static_cast<uint32_t>(world - 1)); }
  int32_t to(int32_t round) const { return (rank + world - (1 << round)) % world; }
  int32_t from(int32_t round) const { return (rank + (1 << round)) % world; }
  // Number of ranks whose data are sent in a round; the last round sends only the rest.
  int32_t blocks(int32_t round) const { return std::min(1 << round, world - (1 << round)); }
  // True if a round connects the two ranks, in either direction.
  bool joins(int32_t other) const {
    const auto distance = static_cast<uint32_t>((other + world - rank) % world);
    return std::has_single_bit(distance) || std::has_single_bit(static_cast<uint32_t>(world) - distance);
  }
};

// A binomial tree: the rank at place p, counted from the root, hears from the place with p's lowest bit cleared.
struct PairTree {
  int32_t rank = 0, world = 1, root = 0;

  int32_t place() const { return (rank + world - root) % world; }
  int32_t parent() const { return (root + (place() & (place() - 1))) % world; }
  // Calls f(rank) for each rank that hears from this one.
  template <class F>
  void for_each_child(F&& f) const {
    const int32_t p = place(), end = p == 0 ? world : p & -p;
    for (int32_t bit = 1; bit < end && p + bit < world; bit <<= 1) f((rank + bit) % world);
  }
};

}  // namespace v1
}  // namespace tessera::sdk
