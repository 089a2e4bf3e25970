// Tests a loop over a trainer's steps: its callbacks, its sums, how it ends, and signals.
#include "tessera/train_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "train/test_trainer.h"

namespace tessera {
namespace {

using test::fill_batch;
using test::TestTrainer;
using testing::ElementsAre;
using testing::HasSubstr;

class Loop : public testing::TestWithParam<bool> {
 protected:
  TrainLoopOptions steps(int64_t first, int64_t last) const {
    return {.first_step = first, .steps = last, .ahead = GetParam()};
  }
  TestTrainer trainer_;
};

TEST_P(Loop, TrainsEveryStepAndSaysSo) {
  std::vector<int64_t> ends;
  std::vector<bool> last;
  TrainLoopOptions o = steps(3, 6);
  o.after_step = [&](TrainLoop&, const StepEnd& end) {
    ends.push_back(end.step);
    last.push_back(end.last);
    EXPECT_EQ(end.batch.labels.item(), static_cast<double>(end.step - 1));
  };
  TrainLoop loop(trainer_, fill_batch, std::move(o));
  loop.run();
  EXPECT_THAT(ends, ElementsAre(4, 5, 6));
  EXPECT_THAT(last, ElementsAre(false, false, true));
  EXPECT_THAT(trainer_.labels(), ElementsAre(3, 4, 5));
  EXPECT_EQ(trainer_.taken(), GetParam() ? 3 : 0);
  EXPECT_EQ(loop.steps_done(), 3);
  EXPECT_EQ(loop.samples(), 3 * test::kSamples);
  EXPECT_FALSE(loop.stopped());
  EXPECT_GE(loop.seconds(), loop.waited_s());
  EXPECT_DEATH(loop.run(), "a loop runs once");
}

TEST_P(Loop, HasNothingToDoWithoutSteps) {
  TrainLoop loop(trainer_, fill_batch, steps(7, 4));
  loop.run();
  EXPECT_EQ(loop.steps_done(), 0);
  EXPECT_EQ(loop.mean_loss(), 0);
}

TEST_P(Loop, EndsBehindTheStepThatSomebodyWantsToEndWith) {
  std::atomic<int> asked = 0;
  std::vector<bool> last;
  TrainLoopOptions o = steps(0, 100);
  o.stop = [&] { return ++asked > 3; };
  o.after_step = [&](TrainLoop&, const StepEnd& end) { last.push_back(end.last); };
  TrainLoop loop(trainer_, fill_batch, std::move(o));
  loop.run();
  EXPECT_TRUE(loop.stopped());
  ASSERT_GE(loop.steps_done(), 3);  // with read-ahead, stop() is called before a step begins
  EXPECT_LE(loop.steps_done(), 4);
  EXPECT_TRUE(last.back());
  EXPECT_EQ(std::count(last.begin(), last.end(), true), 1);
}

TEST_P(Loop, LossesAreMeansOverSamplesSinceTheLastCall) {
  std::vector<double> told;
  TrainLoopOptions o = steps(0, 5);
  o.after_step = [&](TrainLoop& loop, const StepEnd& end) {
    trainer_.loss_of_sample = static_cast<double>(end.step + 1);
    if (end.step % 2 == 0) told.push_back(loop.mean_loss());
  };
  TrainLoop loop(trainer_, fill_batch, std::move(o));
  loop.run();
  EXPECT_THAT(told, ElementsAre(1.5, 3.5));
  EXPECT_EQ(loop.mean_loss(), 5);
  EXPECT_EQ(loop.mean_loss(), 0) << "there was none since";
  EXPECT_THAT(loop.losses(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_P(Loop, ALossThatIsNoNumberIsNamedByItsStep) {
  TrainLoopOptions o = steps(10, 20);
  o.after_step = [&](TrainLoop& loop, const StepEnd& end) {
    if (end.step == 12) trainer_.loss_of_sample = std::numeric_limits<double>::infinity();
    loop.check_losses();
  };
  TrainLoop loop(trainer_, fill_batch, std::move(o));
  EXPECT_THAT(test::refusal(Code::kFailedPrecondition, [&] { loop.run(); }), HasSubstr("the loss of step 13 is inf"));
  EXPECT_EQ(loop.steps_done(), 3);
}

TEST_P(Loop, WhatIsDoneBetweenStepsMayFail) {
  TrainLoopOptions o = steps(0, 10);
  o.after_step = [](TrainLoop&, const StepEnd& end) {
    if (end.step == 2) fail(Code::kUnavailable, "the disk is full");
  };
  TrainLoop loop(trainer_, fill_batch, std::move(o));
  EXPECT_THROW(loop.run(), Error);
  EXPECT_EQ(loop.steps_done(), 2);
}

INSTANTIATE_TEST_SUITE_P(Train, Loop, testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

TEST(Evaluate, NeedsATrainerThatPredicts) {
  DataConfig data;
  data.reader = "synthetic";
  data.samples = data.test_samples = 10;
  data.columns = 1;
  data.rows = {test::kRows};
  const Dataset set = read_dataset(data, 1);
  TestTrainer trainer;
  EXPECT_THROW(evaluate(trainer, {set.test, {.batch = 4}}), Error);
}

TEST(StopSignalsDeathTest, TheFirstIsRememberedAndASecondEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopSignals signals;
        raise(SIGTERM);
        raise(SIGTERM);  // within a second it is the same signal, received twice
        if (!StopSignals::requested()) _exit(1);
        raise(SIGINT);
        _exit(2);
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignalsDeathTest, WhatWasBeforeIsThereAgainAndHearsIt) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          StopSignals::raise_again();  // no signal was received
          raise(SIGTERM);
        }
        StopSignals::raise_again();
        _exit(1);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(StopSignalsDeathTest, WhatWasHeardIsHeardTwiceWhenItHasGoneToo) {
  EXPECT_EXIT(
      {
        {
          const StopSignals signals;
          raise(SIGTERM);
        }
        raise(SIGTERM);
        _exit(kStoppedBySignal);
      },
      testing::ExitedWithCode(kStoppedBySignal), "");
}

TEST(StopSignalsDeathTest, WhatWasIgnoredStaysSo) {
  EXPECT_EXIT(
      {
        signal(SIGINT, SIG_IGN);
        const StopSignals signals;
        raise(SIGINT);
        _exit(StopSignals::requested() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tessera
