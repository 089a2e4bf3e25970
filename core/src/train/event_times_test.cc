#include "train/event_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace tessera {
namespace {

TEST(EventTimes, DelaysAndLateness) {
  EventTimes times;
  EXPECT_TRUE(times.json().is_null());
  times.add(std::vector<double>{100, std::numeric_limits<double>::quiet_NaN(), 103}, 104);
  times.add(std::vector<double>{101, 110}, 112);
  const auto j = times.json();
  EXPECT_EQ(j["rows"], 4);
  EXPECT_EQ(j["first"], 100);
  EXPECT_EQ(j["newest"], 110);
  EXPECT_EQ(j["late_rows"], 1);
  EXPECT_EQ(j["max_lateness_s"], 2);
  EXPECT_EQ(j["delay_s"]["max"], 11);
  EXPECT_EQ(j["delay_s"]["mean"], (4 + 1 + 11 + 2) / 4.0);
}

TEST(EventTimes, QuantilesAreNearTheExactOnes) {
  EventTimes times;
  std::vector<double> all;
  for (int i = 1; i <= 1000; ++i) all.push_back(1000 - i / 100.0);  // delays of 0.01 to 10 s
  times.add(all, 1000);
  const auto j = times.json();
  EXPECT_NEAR(j["delay_s"]["p50"].get<double>(), 5, 0.5);
  EXPECT_NEAR(j["delay_s"]["p99"].get<double>(), 9.9, 0.5);
}

}  // namespace
}  // namespace tessera
