#include "distributed/touched_rows.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera {
namespace {

using MarkedRows = std::vector<std::pair<int64_t, bool>>;

MarkedRows rows_of(const TouchedRows& touched, size_t table) {
  MarkedRows out;
  touched.for_each(table, [&](int64_t row, bool mine) { out.emplace_back(row, mine); });
  return out;
}

TEST(TouchedRows, AscendAndStayInTheirTable) {
  TouchedRows touched({65, 0, 64, 1});
  for (const int64_t row : {64, 0, 63, 0}) touched.mark(0, row);
  touched.mark(2, 63);
  touched.mark(3, 0);
  EXPECT_EQ(rows_of(touched, 0), (MarkedRows{{0, true}, {63, true}, {64, true}}));
  EXPECT_EQ(rows_of(touched, 1), MarkedRows{});
  EXPECT_EQ(rows_of(touched, 2), (MarkedRows{{63, true}}));
  EXPECT_EQ(rows_of(touched, 3), (MarkedRows{{0, true}}));
  EXPECT_EQ(touched.count(0), 3);
  EXPECT_EQ(touched.count(1), 0);
}

TEST(TouchedRows, AreForgotten) {
  TouchedRows touched({200});
  touched.mark(0, 150);
  touched.clear();
  touched.mark(0, 3);
  EXPECT_EQ(rows_of(touched, 0), (MarkedRows{{3, true}}));
}

}  // namespace
}  // namespace tessera
