#include "event_time.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera_readers {
namespace {

TEST(EventTime, Numbers) {
  EXPECT_EQ(event_time("1772366400"), 1772366400.0);
  EXPECT_EQ(event_time("1772366400.25"), 1772366400.25);
  EXPECT_EQ(event_time("1772366400250"), 1772366400.25);
  EXPECT_EQ(event_time("1772366400250000"), 1772366400.25);
  EXPECT_NEAR(event_time("1772366400250000000"), 1772366400.25, 1e-6);
  EXPECT_EQ(event_time(881250949.0), 881250949.0);
}

TEST(EventTime, Iso8601) {
  EXPECT_EQ(event_time("1970-01-02"), 86400.0);
  EXPECT_EQ(event_time("2026-03-01T12:00:00"), 1772366400.0);
  EXPECT_EQ(event_time("2026-03-01 12:00"), 1772366400.0);
  EXPECT_EQ(event_time("2026-03-01T12:00:00.25Z"), 1772366400.25);
  EXPECT_EQ(event_time("2026-03-01T13:00:00+01:00"), 1772366400.0);
  EXPECT_EQ(event_time("2026-03-01T06:30:00-0530"), 1772366400.0);
}

TEST(EventTime, OtherTextsAreNone) {
  for (const char* text : {"", "now", "2026-13-01", "2026-02-30", "2026-03-01T", "2026-03-01T25:00", "2026-03-01T12",
                           "2026-03-01T12:00:00 or so", "2026-03-01T12:00:00+1", "-26-03-01"})
    EXPECT_TRUE(std::isnan(event_time(text))) << text;
}

}  // namespace
}  // namespace tessera_readers
