// The way of step headers among many ranks. Rank r is in row r / columns and column r % columns of a grid of all ranks.
// It first gives each rank of its row the blocks for that rank's column. That rank joins what its row has for each
// other row, and sends it down its column. So a rank sends a message to each rank of its row and of its column, instead
// of one to every rank; each block travels twice.
#pragma once

#include <cstdint>

namespace tessera {

struct HeaderGrid {
  static constexpr int kDirect = 16;  // the largest world whose ranks all exchange directly

  int rows = 1, columns = 1;

  // The grid with the fewest messages whose rows are whole hosts, or equal parts of a host. One row, in which all
  // exchange directly, if there is no other grid.
  static constexpr HeaderGrid of(int world, int ranks_per_host) {
    HeaderGrid best{1, world};
    if (world <= kDirect) return best;
    for (int columns = 2; columns < world; ++columns) {
      if (world % columns != 0 || (columns % ranks_per_host != 0 && ranks_per_host % columns != 0)) continue;
      if (columns + world / columns < best.columns + best.rows) best = {world / columns, columns};
    }
    return best;
  }

  constexpr bool is_direct() const { return rows == 1; }
  constexpr int world() const { return rows * columns; }
  constexpr bool same_row(int a, int b) const { return a / columns == b / columns; }
  constexpr bool same_column(int a, int b) const { return a % columns == b % columns; }
  // Blocks that a rank sends to another one in both hops together.
  constexpr int blocks_between(int from, int to) const {
    return (same_row(from, to) ? rows : 0) + (!is_direct() && same_column(from, to) ? columns : 0);
  }
  // The other ranks to which rank 0 sends, and the blocks that it sends to them: in its host, and across hosts. The
  // numbers are the same for other ranks.
  struct Peers {
    int ranks = 0, blocks = 0;
  };
  struct Reach {
    Peers in_host, across;
  };
  constexpr Reach reach(int ranks_per_host) const {
    Reach out;
    for (int peer = 1; peer < world(); ++peer) {
      Peers& to = peer < ranks_per_host ? out.in_host : out.across;
      to.ranks += blocks_between(0, peer) > 0;
      to.blocks += blocks_between(0, peer);
    }
    return out;
  }
  // Place of the block for `rank` among those that a rank sends: by column, then by row. The blocks of the first hop
  // arrive by the column of their sender, then by the row of their receiver.
  constexpr int64_t place_of(int rank) const { return int64_t{rank % columns} * rows + rank / columns; }
};

}  // namespace tessera
