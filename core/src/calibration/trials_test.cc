#include "calibration/trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/runtime.h"

namespace tessera {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

TEST(FitNonnegative, FindsWhatTimesAreMadeOf) {
  EXPECT_THAT(fit_nonnegative({{1, 10}, {1, 20}, {1, 70}}, {23, 43, 143}, {23, 43, 143}),
              ElementsAre(DoubleNear(3, 1e-6), DoubleNear(2, 1e-6)));
}

TEST(FitNonnegative, NothingTakesLessThanNoTime) {
  // Without the bound the solution would be 30 for each and -1 for each of the second.
  EXPECT_THAT(fit_nonnegative({{1, 0}, {1, 10}, {1, 20}}, {30, 20, 10}, {1, 1, 1}),
              ElementsAre(DoubleNear(20, 1e-6), 0));
  EXPECT_THAT(fit_nonnegative({{1, 0}, {2, 0}}, {5, 10}, {1, 1}), ElementsAre(DoubleNear(5, 1e-6), 0))
      << "what never occurred costs nothing";
}

TEST(FitNonnegative, ErrorsCountByTheirScale) {
  // (x - 1)^2 + ((x - 100) / 100)^2
  EXPECT_THAT(fit_nonnegative({{1}, {1}}, {1, 100}, {1, 100}), ElementsAre(DoubleNear(1.01 / 1.0001, 1e-6)));
}

TEST(MedianOf, IsInTheMiddle) {
  EXPECT_EQ(median_of({7}), 7);
  EXPECT_EQ(median_of({100, 1, 2}), 2);
}

class OneRanksTrials : public testing::Test {
 protected:
  const Runtime runtime_;
  const std::shared_ptr<ProcessGroup> group_ = ProcessGroup::connect(runtime_, RankEnvironment{}, {});
  const Trials trials_{*group_, {.seconds = 0, .least = 5}};
  int calls_ = 0;
};

TEST_F(OneRanksTrials, TheFirstCallAndAnOutlierDoNotCount) {
  const std::vector<double> samples = {900, 3, 1, 2, 800, 2};
  const auto times = trials_.times([&] {
    const double sample = samples.at(static_cast<size_t>(calls_++));
    return std::vector<double>{sample, 10 * sample};
  });
  EXPECT_EQ(calls_, 6);
  EXPECT_THAT(times, ElementsAre(2, 20));
}

TEST_F(OneRanksTrials, WhatIsPreparedIsPreparedForEach) {
  int prepared = 0;
  EXPECT_GE(trials_.time([&] { EXPECT_EQ(prepared, ++calls_); }, [&] { ++prepared; }), 0);
  EXPECT_EQ(calls_, 6);
}

TEST_F(OneRanksTrials, TogetherAllCallEquallyOften) {
  EXPECT_THAT(trials_.times_together([&] { return std::vector<double>{static_cast<double>(++calls_)}; }),
              ElementsAre(9));  // after six probes
  EXPECT_EQ(calls_, 11);
}

}  // namespace
}  // namespace tessera
