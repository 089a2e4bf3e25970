#include "tessera/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "config/test_refusal.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

std::vector<double> factors(const LearningRateSchedule& schedule, std::initializer_list<int64_t> steps) {
  std::vector<double> out;
  for (const int64_t step : steps) out.push_back(schedule.factor(step));
  return out;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
}

TEST(LearningRateSchedule, NoneIsOne) {
  EXPECT_TRUE(LearningRateSchedule().empty());
  EXPECT_EQ(LearningRateSchedule({}, 10).factor(7), 1);
}

// Checks the formulas of torch.optim.lr_scheduler: LinearLR, CosineAnnealingLR, PolynomialLR, ExponentialLR, StepLR.
TEST(LearningRateSchedule, Shapes) {
  expect_near(factors({{"constant?factor=0.5"}, 10}, {0, 9, 20}), {0.5, 0.5, 0.5});
  expect_near(factors({{"linear?steps=4"}, 10}, {0, 1, 3, 4, 9}), {0, 0.25, 0.75, 1, 1});
  expect_near(factors({{"cosine?to=0.2"}, 10}, {0, 5, 10, 11}), {1, 0.6, 0.2, 0.2});
  EXPECT_NEAR(LearningRateSchedule({"cosine"}, 8).factor(2), (1 + std::sqrt(0.5)) / 2, 1e-12);
  expect_near(factors({{"polynomial?steps=10&power=3"}, 99}, {0, 5, 10, 50}), {1, 0.125, 0, 0});
  expect_near(factors({{"exponential?gamma=0.5&steps=3"}, 99}, {0, 1, 3, 4}), {1, 0.5, 0.125, 0.125});
  expect_near(factors({{"step?gamma=0.1&every=10"}, 30}, {0, 9, 10, 29}), {1, 1, 0.1, 0.01});
}

TEST(LearningRateSchedule, StagesFollowEachOther) {
  const LearningRateSchedule schedule({"linear?steps=10", "constant?steps=5", "cosine"}, 35);
  expect_near(factors(schedule, {0, 5, 10, 14, 15, 25, 35}), {0, 0.5, 1, 1, 1, 0.5, 0});
}

void expect_refused(const std::vector<std::string>& stages, const std::string& why) {
  EXPECT_THAT(test::refusal(Code::kInvalidArgument, [&] { const LearningRateSchedule schedule(stages, 10); }),
              HasSubstr(why));
}

TEST(LearningRateSchedule, WhatCannotBeIsNamed) {
  expect_refused({"cosin"}, "schedule \"cosin\": there is no shape \"cosin\"; the nearest is \"cosine\"");
  expect_refused({"cosine?step=3"}, "unknown option \"step\"; the nearest is \"steps\"");
  expect_refused({"exponential"}, "schedule \"exponential\": exponential needs gamma");
  expect_refused({"linear", "cosine"}, "schedule \"linear\": only the last stage may leave out steps");
  expect_refused({"linear?steps=0"}, "steps counts steps: 1 or more");
  expect_refused({"linear?from=-1"}, "from must be from 0 to 1000000");
  expect_refused({"linear?from=x"}, "from must be a number");
  expect_refused({"linear(cosine)"}, "a stage is a shape with options");
}

}  // namespace
}  // namespace tessera
