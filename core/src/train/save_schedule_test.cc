#include "train/save_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

using testing::ElementsAre;

struct Trial {
  std::vector<int64_t> saves;
  int looks = 0;
};

// Runs steps of 0.1 s. Writing a checkpoint takes `write_steps`.
Trial run(SaveScheduleOptions options, int64_t first, int64_t last, int64_t write_steps = 0) {
  const Runtime runtime({.default_path = false});
  const auto group = ProcessGroup::connect(runtime, {});
  double now = 1000;
  options.first_step = first;
  options.seconds = [&] { return now; };
  SaveSchedule schedule(options);
  Trial out;
  for (int64_t step = first + 1; step <= last; ++step) {
    now += 0.1;
    if (!schedule.looks(step)) continue;
    ++out.looks;
    const bool busy = !out.saves.empty() && step < out.saves.back() + write_steps;
    if (schedule.due(step, busy, *group)) out.saves.push_back(step);
  }
  return out;
}

TEST(SaveSchedule, BySteps) {
  EXPECT_THAT(run({.every_steps = 10}, 0, 35).saves, ElementsAre(10, 20, 30));
  EXPECT_THAT(run({.every_steps = 10}, 15, 35).saves, ElementsAre(20, 30)) << "a run that goes on";
  EXPECT_EQ(run({.every_steps = 10}, 0, 35).looks, 3);
}

TEST(SaveSchedule, ByTimeWithFewLooks) {
  const Trial timed = run({.every_s = 100}, 0, 3500);
  EXPECT_THAT(timed.saves, ElementsAre(testing::AllOf(testing::Ge(999), testing::Le(1002)),
                                       testing::AllOf(testing::Ge(1998), testing::Le(2004)),
                                       testing::AllOf(testing::Ge(2997), testing::Le(3006))));
  EXPECT_LT(timed.looks, 60);
}

TEST(SaveSchedule, ByBoth) {
  const Trial both = run({.every_steps = 400, .every_s = 100}, 0, 1100);
  EXPECT_THAT(both.saves, ElementsAre(400, 800)) << "the time starts again with each save";
}

TEST(SaveSchedule, WaitsForTheOneBefore) {
  EXPECT_THAT(run({.every_steps = 10}, 0, 40, 13).saves, ElementsAre(10, 23, 36));
}

TEST(SaveSchedule, NeverWithoutBeingTold) { EXPECT_EQ(run({}, 0, 1000).looks, 0); }

}  // namespace
}  // namespace tessera
