#include "train/event_times.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tessera {
namespace {

TEST(EventTimes, DelaysAndLateness) {
  EventTimes times;
  EXPECT_FALSE(times.figures());
  times.add(std::vector<double>{100, std::numeric_limits<double>::quiet_NaN(), 103}, 104);
  times.add(std::vector<double>{101, 110}, 112);
  const EventTimeFigures f = times.figures().value();
  EXPECT_EQ(f.rows, 4);
  EXPECT_EQ(f.first, 100);
  EXPECT_EQ(f.newest, 110);
  EXPECT_EQ(f.late_rows, 1);
  EXPECT_EQ(f.max_lateness_s, 2);
  EXPECT_EQ(f.delay_s.max, 11);
  EXPECT_EQ(f.delay_s.mean, (4 + 1 + 11 + 2) / 4.0);
}

TEST(EventTimes, QuantilesAreNearTheExactOnes) {
  EventTimes times;
  std::vector<double> all;
  for (int i = 1; i <= 1000; ++i) all.push_back(1000 - i / 100.0);  // delays of 0.01 to 10 s
  times.add(all, 1000);
  const EventTimeFigures f = times.figures().value();
  EXPECT_NEAR(f.delay_s.p50, 5, 0.5);
  EXPECT_NEAR(f.delay_s.p99, 9.9, 0.5);
}

}  // namespace
}  // namespace tessera
