#include "wiring/tiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera {
namespace {

using testing::HasSubstr;
using Rectangles = std::vector<tsr_rectangle>;  // {row, rows, col, cols}

TEST(Tiling, AcceptsCutsOfEveryKind) {
  EXPECT_EQ(why_not_tiling(Rectangles{{0, 10, 0, 8}}, 10, 8), "");
  EXPECT_EQ(why_not_tiling(Rectangles{{0, 4, 0, 8}, {4, 6, 0, 8}, {10, 0, 0, 8}}, 10, 8), "");
  EXPECT_EQ(why_not_tiling(Rectangles{{0, 10, 4, 4}, {0, 10, 0, 4}}, 10, 8), "");
  EXPECT_EQ(why_not_tiling(Rectangles{{0, 3, 0, 4}, {3, 7, 0, 4}, {0, 9, 4, 4}, {9, 1, 4, 4}}, 10, 8), "");
}

TEST(Tiling, NamesWhatIsWrong) {
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 10, 0, 4}}, 10, 8), HasSubstr("leave 40 of the table's 10 x 8"));
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 6, 0, 8}, {5, 5, 0, 8}}, 10, 8), HasSubstr("rows [0, 6)"));
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 10, 0, 5}, {0, 10, 4, 4}}, 10, 8), HasSubstr("overlap"));
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 11, 0, 8}}, 10, 8), HasSubstr("not inside"));
  EXPECT_THAT(why_not_tiling(Rectangles{{-1, 11, 0, 8}}, 10, 8), HasSubstr("not inside"));
  EXPECT_THAT(why_not_tiling(Rectangles{{INT64_MAX, 1, 0, 8}}, 10, 8), HasSubstr("not inside"));
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 10, 0, 0}}, 10, 8), HasSubstr("not inside"));
  EXPECT_THAT(why_not_tiling({}, 10, 8), HasSubstr("leave 80"));
}

TEST(Tiling, AnOverlapThatKeepsTheAreaIsFound) {
  // 8 cells too many above, 8 too few below.
  EXPECT_THAT(why_not_tiling(Rectangles{{0, 5, 0, 8}, {4, 5, 0, 8}}, 10, 8), HasSubstr("overlap"));
}

TEST(Tiling, Routed) {
  EXPECT_EQ(why_not_tiling_routed(Rectangles{{0, 7, 0, 8}, {0, 3, 0, 8}}, 10, 8), "");
  EXPECT_EQ(why_not_tiling_routed(Rectangles{{0, 7, 0, 4}, {0, 3, 0, 4}, {0, 7, 4, 4}, {0, 3, 4, 4}}, 10, 8), "");
  EXPECT_THAT(why_not_tiling_routed(Rectangles{{0, 7, 0, 4}, {0, 3, 0, 4}, {0, 10, 4, 4}}, 10, 8),
              HasSubstr("other row sets"));
  EXPECT_THAT(why_not_tiling_routed(Rectangles{{0, 7, 0, 8}, {0, 2, 0, 8}}, 10, 8), HasSubstr("9 rows"));
  EXPECT_THAT(why_not_tiling_routed(Rectangles{{0, 10, 0, 4}}, 10, 8), HasSubstr("column 4"));
  EXPECT_THAT(why_not_tiling_routed(Rectangles{{0, 10, 0, 8}, {3, 0, 0, 8}}, 10, 8), HasSubstr("row 0"));
}

// Cuts a random rectangle again and again.
Rectangles random_tiling(std::mt19937_64& random, int64_t rows, int64_t cols) {
  Rectangles pieces{{0, rows, 0, cols}};
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int cut = 0; cut < 40; ++cut) {
    tsr_rectangle& piece = pieces[static_cast<size_t>(below(std::ssize(pieces)))];
    tsr_rectangle rest = piece;
    if (below(2) == 0 && piece.rows > 1) {
      piece.rows = 1 + below(piece.rows - 1);
      rest.row += piece.rows;
      rest.rows -= piece.rows;
    } else if (piece.cols > 1) {
      piece.cols = 1 + below(piece.cols - 1);
      rest.col += piece.cols;
      rest.cols -= piece.cols;
    } else {
      continue;
    }
    pieces.push_back(rest);
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

TEST(Tiling, RandomTilingsHoldAndAnyPieceMovedBreaksThem) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const auto rows = static_cast<int64_t>(2 + random() % 50), cols = static_cast<int64_t>(2 + random() % 50);
    Rectangles pieces = random_tiling(random, rows, cols);
    ASSERT_EQ(why_not_tiling(pieces, rows, cols), "") << round;
    if (pieces.size() < 2) continue;
    tsr_rectangle& moved = pieces[random() % pieces.size()];
    (random() % 2 == 0 ? moved.row : moved.col) += random() % 2 == 0 ? 1 : -1;
    EXPECT_NE(why_not_tiling(pieces, rows, cols), "") << round;
  }
}

}  // namespace
}  // namespace tessera
