// Tests rows that changed since the marks of a table's followers.
#include "tessera/sdk/draft/row_marks.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera::sdk {
namespace {

std::vector<int64_t> rows_of(const RowMarks& marks, uint32_t follower) {
  std::vector<int64_t> out;
  for (int64_t row = 0; (row = marks.next(follower, row)) >= 0; ++row) out.push_back(row);
  return out;
}

TEST(RowMarks, AreSinceEachOnesOwnMark) {
  std::mt19937 random(5);
  for (const bool grows : {false, true}) {
    RowMarks marks;
    EXPECT_FALSE(marks);
    int64_t rows = 130;
    std::array<std::set<int64_t>, kFollowers> want;
    const auto mark = [&](uint32_t follower) {
      marks.start(follower, rows);
      want[follower].clear();
    };
    for (uint32_t follower = 0; follower < kFollowers; ++follower) mark(follower);
    EXPECT_TRUE(marks);
    for (int step = 0; step < 400; ++step) {
      if (grows && step % 10 == 0) rows += random() % 70;
      if (random() % 9 == 0) mark(random() % kFollowers);
      const auto row = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
      if (grows) {
        marks.add_alone(row);
      } else {
        marks.add(row);
      }
      for (uint32_t follower = 0; follower < kFollowers; ++follower) {
        want[follower].insert(row);
        ASSERT_EQ(rows_of(marks, follower), std::vector<int64_t>(want[follower].begin(), want[follower].end())) << step;
        ASSERT_EQ(marks.count(follower), std::ssize(want[follower]));
        const auto other = static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
        ASSERT_EQ(marks.has(follower, other), want[follower].contains(other));
      }
    }
  }
}

TEST(RowMarks, OneWhoDoesNotFollowCostsNothing) {
  RowMarks marks;
  marks.start(1, 6400);
  const uint64_t alone = marks.bytes();
  EXPECT_GE(alone, 800u);
  EXPECT_LE(alone, 808u);
  marks.add(17);
  marks.start(1, 6400);
  EXPECT_EQ(marks.bytes(), alone);
  EXPECT_EQ(marks.count(1), 0);
  marks.start(0, 6400);
  EXPECT_LE(marks.bytes(), 2 * alone);
}

// A table whose rows were replaced by fewer rows.
TEST(RowMarks, StayWhereATableHasBecomeSmaller) {
  RowMarks marks;
  marks.start(0, 1000);
  marks.add(999);
  marks.start(1, 10);
  marks.add_alone(3);
  EXPECT_EQ(rows_of(marks, 0), (std::vector<int64_t>{3, 999}));
  EXPECT_EQ(rows_of(marks, 1), (std::vector<int64_t>{3}));
  EXPECT_TRUE(marks.has(0, 999));
  EXPECT_FALSE(marks.has(1, 999));
}

}  // namespace
}  // namespace tessera::sdk
