#include "sparse/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::sparse {
namespace {

std::string repr(double value) {
  std::string out;
  append_repr(out, value);
  return out;
}

std::string list(const Tensor& t, int64_t first, int64_t last) {
  std::string out;
  append_list(out, t, first, last);
  return out;
}

TEST(Text, FloatsPrintAsInPython) {
  EXPECT_EQ(repr(0.0), "0.0");
  EXPECT_EQ(repr(-0.0), "-0.0");
  EXPECT_EQ(repr(1.0), "1.0");
  EXPECT_EQ(repr(-12.5), "-12.5");
  EXPECT_EQ(repr(0.1f), "0.10000000149011612");
  EXPECT_EQ(repr(123456789.0), "123456789.0");
  EXPECT_EQ(repr(0.0001), "0.0001");
  EXPECT_EQ(repr(0.00001), "1e-05");
  EXPECT_EQ(repr(-1.5e-7), "-1.5e-07");
  EXPECT_EQ(repr(1e15), "1000000000000000.0");
  EXPECT_EQ(repr(1e16), "1e+16");
  EXPECT_EQ(repr(1.25e100), "1.25e+100");
  EXPECT_EQ(repr(9007199254740993.0), "9007199254740992.0");
  EXPECT_EQ(repr(5e-324), "5e-324");
  EXPECT_EQ(repr(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
  EXPECT_EQ(repr(std::nan("")), "nan");
  EXPECT_EQ(repr(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Text, ListsNestByDimension) {
  const Tensor t = Tensor::from<int64_t>(std::vector<int64_t>{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(list(t, 1, 3), "[2, 3]");
  EXPECT_EQ(list(t.reshape({3, 2}), 0, 2), "[[1, 2], [3, 4]]");
  EXPECT_EQ(list(t.reshape({3, 1, 2}), 1, 2), "[[[3, 4]]]");
  EXPECT_EQ(list(Tensor::empty({2, 0}), 0, 2), "[[], []]");
  EXPECT_EQ(list(Tensor::from<uint8_t>({200}), 0, 1), "[200]");
}

TEST(Text, PositionsOutsideAreClamped) {
  const Tensor t = Tensor::from<float>({1, 2});
  EXPECT_EQ(list(t, -5, 1), "[1.0]");
  EXPECT_EQ(list(t, 1, 99), "[2.0]");
  EXPECT_EQ(list(t, 2, 1), "[]");
}

TEST(Text, RowsFollowOffsets) {
  std::string out;
  append_rows(out, Tensor::from<int32_t>({7, 8, 9}), Tensor::from<int64_t>({0, 2, 2, 3}), 0, 3);
  EXPECT_EQ(out, "[[7, 8], [], [9]]");
}

}  // namespace
}  // namespace tessera::sparse
