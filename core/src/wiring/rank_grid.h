// The way of small messages among many ranks. Rank r is in row r / columns and column r % columns of a grid of all
// ranks. Data for the owners of rows travel in two hops. First a rank sends to each rank of its row the data for that
// rank's column. Then that rank joins what its row has for each other row, and sends it along its column. Rows travel
// back the same way. So a rank sends a message to each rank of its row and of its column, instead of one to every rank,
// and data travel twice.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/sharding.h"

namespace tessera {

struct RankGrid {
  // The largest world whose ranks all exchange directly, unless a job says otherwise.
  static constexpr int kDirect = 16;

  int rows = 1, columns = 1;

  // Returns the grid with the fewest messages among those whose rows are whole hosts, or equal parts of a host. If
  // several have the fewest, it is the first one with the fewest messages to other hosts. If there is no such grid, it
  // is one row, in which all ranks exchange directly.
  static constexpr RankGrid of(int world, int ranks_per_host, JoinExchanges join = JoinExchanges::kAuto) {
    RankGrid best{1, world};
    if (join == JoinExchanges::kNever || (join == JoinExchanges::kAuto && world <= kDirect)) return best;
    for (int columns = 2; columns < world; ++columns) {
      if (world % columns != 0 || (columns % ranks_per_host != 0 && ranks_per_host % columns != 0)) continue;
      const RankGrid grid{world / columns, columns};
      const int more = grid.columns + grid.rows - best.columns - best.rows;
      if (more < 0 || (more == 0 && grid.reach(ranks_per_host).across.ranks < best.reach(ranks_per_host).across.ranks))
        best = grid;
    }
    return best;
  }

  constexpr bool is_direct() const { return rows == 1; }
  constexpr int world() const { return rows * columns; }
  constexpr int row_of(int rank) const { return rank / columns; }
  constexpr int column_of(int rank) const { return rank % columns; }
  constexpr int rank_at(int row, int column) const { return row * columns + column; }
  constexpr bool same_row(int a, int b) const { return row_of(a) == row_of(b); }
  constexpr bool same_column(int a, int b) const { return column_of(a) == column_of(b); }
  // Number of blocks that a rank sends to another one, over both hops.
  constexpr int blocks_between(int from, int to) const {
    return (same_row(from, to) ? rows : 0) + (!is_direct() && same_column(from, to) ? columns : 0);
  }
  // Numbers of ranks to which rank 0 sends, and of blocks that it sends to them: in its host, and across hosts. They
  // are the same for other ranks.
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
  // Place of the block for `rank` among the blocks that a rank sends: by column, then by row. Blocks of the first hop
  // arrive by their sender's column, then by their receiver's row.
  constexpr int64_t place_of(int rank) const { return int64_t{column_of(rank)} * rows + row_of(rank); }
};

// Sizes of a joined exchange that one rank knows, in bytes or elements. They may be integers, or expected values. The
// data between a home and an owner have the same size in both directions.
template <class Number>
struct JoinedSizes {
  RankGrid grid;
  int rank = 0;
  std::vector<Number> as_home;   // by owner: between this rank as home and each owner
  std::vector<Number> as_owner;  // by home: between this rank as owner and each home
  std::vector<Number> relayed;   // between homes of this rank's row and owners of its column: see relayed_at()

  size_t relayed_at(int home_column, int owner_row) const {
    return static_cast<size_t>(home_column * grid.rows + owner_row);
  }
  // Fills the sizes by rank of the four messages: between this rank as home and the relays of its row, between this
  // rank as relay and those homes, and the same with owners down its column.
  struct ByRank {
    std::vector<Number> home_and_relay, relay_and_home, owner_and_relay, relay_and_owner;
  };
  void add_up(ByRank& out) const {
    for (auto* sizes : {&out.home_and_relay, &out.relay_and_home, &out.owner_and_relay, &out.relay_and_owner})
      sizes->assign(static_cast<size_t>(grid.world()), Number{});
    const int row = grid.row_of(rank), column = grid.column_of(rank);
    for (int r = 0; r < grid.rows; ++r) {
      for (int c = 0; c < grid.columns; ++c) {
        const auto other = static_cast<size_t>(grid.rank_at(r, c));
        const auto in_row = static_cast<size_t>(grid.rank_at(row, c)),
                   below = static_cast<size_t>(grid.rank_at(r, column));
        out.home_and_relay[in_row] += as_home[other];
        out.owner_and_relay[below] += as_owner[other];
        out.relay_and_home[in_row] += relayed[relayed_at(c, r)];
        out.relay_and_owner[below] += relayed[relayed_at(c, r)];
      }
    }
  }
};

}  // namespace tessera
