// Tests the output of a pipeline, what its thread does meanwhile, and how it ends.
#include "tessera/train_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <future>

#include "config/test_refusal.h"
#include "train/test_trainer.h"

namespace tessera {
namespace {

using namespace std::chrono_literals;
using test::fill_batch;
using test::TestTrainer;
using testing::ElementsAre;
using testing::HasSubstr;

double cpu_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Pipeline : public testing::TestWithParam<bool> {
 protected:
  TrainPipelineOptions steps(int64_t first, int64_t last) const { return {first, last, GetParam()}; }
  // Takes the next input and does a step's work with it.
  double step(TrainPipeline& inputs) {
    TrainInput& input = inputs.next();
    EXPECT_EQ(static_cast<bool>(input.taken), GetParam());
    trainer_.step(input.batch, std::move(input.taken), false);
    return trainer_.labels().back();
  }

  TestTrainer trainer_;
};

TEST_P(Pipeline, HandsOutEveryStepOnceInOrder) {
  std::vector<int64_t> read;
  TrainPipeline inputs(
      [&](int64_t step, Batch& batch) {
        read.push_back(step);
        fill_batch(step, batch);
      },
      trainer_.embeddings(), steps(5, 9));
  for (int64_t i = 5; i < 9; ++i) EXPECT_EQ(step(inputs), static_cast<double>(i));
  EXPECT_THAT(read, ElementsAre(5, 6, 7, 8));
  EXPECT_GE(inputs.waited_s(), 0);
  EXPECT_GT(inputs.read_s(), 0);
}

TEST_P(Pipeline, ReadsInTheCallersThreadUnlessAhead) {
  std::thread::id reader;
  TrainPipeline inputs(
      [&](int64_t step, Batch& batch) {
        reader = std::this_thread::get_id();
        fill_batch(step, batch);
      },
      trainer_.embeddings(), steps(0, 1));
  inputs.next();
  EXPECT_EQ(reader == std::this_thread::get_id(), !GetParam());
}

TEST_P(Pipeline, AnErrorOfReadingArrivesWithItsStep) {
  TrainPipeline inputs(
      [&](int64_t step, Batch& batch) {
        if (step == 2) fail(Code::kDataLoss, "line 3 is torn");
        fill_batch(step, batch);
      },
      trainer_.embeddings(), steps(0, 5));
  for (int i = 0; i < 2; ++i) step(inputs);
  EXPECT_EQ(test::refusal(Code::kDataLoss, [&] { inputs.next(); }), "line 3 is torn");
}

TEST_P(Pipeline, MayEndBeforeItsSteps) {
  for (int done = 0; done < 4; ++done) {
    TestTrainer trainer;
    TrainPipeline inputs(fill_batch, trainer.embeddings(), steps(0, 100));
    for (int i = 0; i < done; ++i) {
      TrainInput& input = inputs.next();
      trainer.step(input.batch, std::move(input.taken), false);
    }
  }
}

TEST(PipelineInTurn, HasAsManyInputsAsSteps) {
  TestTrainer trainer;
  TrainPipeline inputs(fill_batch, trainer.embeddings(), {0, 1});
  inputs.next();
  EXPECT_DEATH(inputs.next(), "as many inputs as it has steps");
}

// A batch is read during the step before it. The batch after that must wait until this step is over, because there are
// two slots.
TEST(PipelineAhead, IsOneStepAhead) {
  TestTrainer trainer;
  std::array<std::promise<void>, 4> read;
  TrainPipeline inputs(
      [&](int64_t step, Batch& batch) {
        fill_batch(step, batch);
        read[static_cast<size_t>(step)].set_value();
      },
      trainer.embeddings(), {0, 4, true});
  for (size_t step = 0; step + 1 < 4; ++step) {
    TrainInput& input = inputs.next();
    ASSERT_EQ(read[step + 1].get_future().wait_for(60s), std::future_status::ready) << "nobody has to ask for it";
    if (step + 2 < 4) {
      EXPECT_EQ(input.batch.labels.item(), static_cast<double>(step)) << "the step's own batch stays as it is";
    }
    trainer.step(input.batch, std::move(input.taken), false);
  }
}

// On a busy machine, a thread that spins takes the processor from the one it waits for. So both must sleep: their
// processor time is a small part of the elapsed time.
constexpr auto kLong = 400ms;
constexpr double kAsleep = 0.1;  // seconds; a spinning thread takes four times as much, or twice as much beside another

TEST(PipelineAhead, SleepsWhileItWaitsForTheReader) {
  TestTrainer trainer;
  TrainPipeline inputs(
      [&](int64_t step, Batch& batch) {
        if (step == 1) std::this_thread::sleep_for(kLong);
        fill_batch(step, batch);
      },
      trainer.embeddings(), {0, 2, true});
  TrainInput& input = inputs.next();
  trainer.step(input.batch, std::move(input.taken), false);
  const double before = cpu_seconds(CLOCK_THREAD_CPUTIME_ID), waited = inputs.waited_s();
  inputs.next();
  EXPECT_GT(inputs.waited_s() - waited, 0.2) << "the time counts as waited";
  EXPECT_LT(cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - before, kAsleep);
}

TEST(PipelineAhead, SleepsWhileTheStepIsUnderWay) {
  TestTrainer trainer;
  TrainPipeline inputs(fill_batch, trainer.embeddings(), {0, 3, true});
  TrainInput& input = inputs.next();
  const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(kLong);
  EXPECT_LT(cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before, kAsleep);
  trainer.step(input.batch, std::move(input.taken), false);
}

TEST(PipelineAhead, SaysToTheOthersThatItWantsToEnd) {
  TestTrainer trainer;
  int64_t asked = 0;
  TrainPipeline inputs(fill_batch, trainer.embeddings(), {0, 10, true, [&] { return ++asked > 2; }});
  std::vector<bool> ends;
  while (ends.empty() || !ends.back()) {
    TrainInput& input = inputs.next();
    ends.push_back(trainer.step(input.batch, std::move(input.taken), false));
  }
  EXPECT_THAT(ends, ElementsAre(false, false, true));
}

TEST(InEpochs, AreTheReadersBatchesFromAnyStepOn) {
  DataConfig data{.reader = "synthetic", .rows = {50}, .samples = 100, .test_samples = 1, .columns = 1};
  const Dataset set = read_dataset(data, 1);
  const BatchReaderOptions options{.batch = 30, .seed = 3, .shuffle = true};
  BatchReader by_hand(set.train, options);
  const int64_t per_epoch = by_hand.batches();
  ASSERT_GT(per_epoch, 2);
  const ReadBatch from_start = in_epochs({set.train, options}), from_middle = in_epochs({set.train, options});
  Batch want, got, late;
  for (int64_t step = 0; step < 2 * per_epoch; ++step) {
    if (step % per_epoch == 0) by_hand.start_epoch(step / per_epoch);
    ASSERT_TRUE(by_hand.next(want));
    from_start(step, got);
    EXPECT_EQ(got.sparse.values().to_vector<int32_t>(), want.sparse.values().to_vector<int32_t>()) << "step " << step;
    if (step <= per_epoch) continue;
    from_middle(step, late);
    EXPECT_EQ(late.sparse.values().to_vector<int32_t>(), want.sparse.values().to_vector<int32_t>()) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Train, Pipeline, testing::Bool(),
                         [](const auto& ahead) { return ahead.param ? "Ahead" : "InTurn"; });

}  // namespace
}  // namespace tessera
