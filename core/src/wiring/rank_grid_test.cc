#include "wiring/rank_grid.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera {
namespace {

void expect_grid(int world, int ranks_per_host, int rows, int columns) {
  const RankGrid grid = RankGrid::of(world, ranks_per_host);
  EXPECT_EQ(std::pair(grid.rows, grid.columns), std::pair(rows, columns)) << world << " by " << ranks_per_host;
  EXPECT_EQ(grid.world(), world);
}

TEST(RankGrid, HasFewMessagesAndRowsOfWholeHosts) {
  expect_grid(16, 8, 1, 16);  // all exchange directly
  expect_grid(18, 18, 6, 3);  // equal parts of one host
  expect_grid(24, 8, 6, 4);
  expect_grid(64, 8, 8, 8);
  expect_grid(4096, 8, 64, 64);  // rows of eight hosts
  expect_grid(248, 8, 31, 8);
  expect_grid(32, 8, 4, 8);  // as many messages as 8 rows of 4, but fewer to other hosts
  expect_grid(34, 17, 2, 17);
  expect_grid(257, 1, 1, 257);  // a prime number has no other grid
}

TEST(RankGrid, IsAsTheJobSays) {
  const RankGrid small = RankGrid::of(8, 4, JoinExchanges::kAlways);
  EXPECT_EQ(std::pair(small.rows, small.columns), std::pair(2, 4));
  EXPECT_TRUE(RankGrid::of(64, 8, JoinExchanges::kNever).is_direct());
  EXPECT_TRUE(RankGrid::of(3, 1, JoinExchanges::kAlways).is_direct());
}

// All ranks in this process: what each has for each other one arrives, in the order of ranks.
void check_way(int world, int ranks_per_host) {
  const RankGrid grid = RankGrid::of(world, ranks_per_host);
  const auto size = static_cast<size_t>(world);
  using Blocks = std::vector<std::pair<int, int>>;  // from, to
  std::vector<Blocks> sent(size, Blocks(size)), got(size);
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) sent[from][grid.place_of(to)] = {from, to};
  }
  const auto hop = [&](auto same, int blocks) {
    for (int to = 0; to < world; ++to) {
      got[to].clear();
      for (int from = 0; from < world; ++from) {
        if (!same(from, to)) continue;
        int before = 0;  // blocks of `from` for the ranks before `to`
        for (int rank = 0; rank < to; ++rank) before += same(from, rank) ? blocks : 0;
        got[to].insert(got[to].end(), sent[from].begin() + before, sent[from].begin() + before + blocks);
      }
      ASSERT_EQ(got[to].size(), size);
    }
  };
  hop([&](int a, int b) { return grid.same_row(a, b); }, grid.rows);
  for (int rank = 0; rank < world; ++rank) {
    for (int row = 0; row < grid.rows; ++row) {
      for (int column = 0; column < grid.columns; ++column)
        sent[rank][row * grid.columns + column] = got[rank][column * grid.rows + row];
    }
  }
  hop([&](int a, int b) { return grid.same_column(a, b); }, grid.columns);
  for (int to = 0; to < world; ++to) {
    int messages = 0, blocks = 0;
    for (int from = 0; from < world; ++from) {
      EXPECT_EQ(got[to][from], std::pair(from, to));
      if (from == to) continue;
      messages += grid.blocks_between(to, from) > 0;
      blocks += grid.blocks_between(to, from);
    }
    EXPECT_EQ(messages, grid.rows + grid.columns - 2);
    EXPECT_EQ(blocks, 2 * world - grid.rows - grid.columns);
  }
}

TEST(RankGrid, BlocksArriveInTheOrderOfRanks) {
  check_way(18, 18);
  check_way(24, 2);
  check_way(40, 8);
  check_way(34, 17);
}

void expect_reach(const RankGrid& grid, int ranks_per_host, std::vector<int> expected) {
  const auto [in_host, across] = grid.reach(ranks_per_host);
  EXPECT_EQ(std::vector({in_host.ranks, in_host.blocks, across.ranks, across.blocks}), expected);
}

TEST(RankGrid, ReachesRanksOfTheHostAndOfOtherHosts) {
  expect_reach(RankGrid::of(5, 5), 5, {4, 4, 0, 0});
  expect_reach(RankGrid::of(16, 4), 4, {3, 3, 12, 12});
  expect_reach(RankGrid::of(64, 8), 8, {7, 56, 7, 56});
  // Rows of four ranks, two in a host: the columns have two ranks of the host.
  expect_reach(RankGrid::of(24, 8), 8, {4, 22, 4, 16});
}

}  // namespace
}  // namespace tessera
