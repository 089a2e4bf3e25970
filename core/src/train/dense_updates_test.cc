// Gradients of several batches for one update, and averages of weights: by formulas, and in jobs that go on.
#include "train/dense_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using Sets = std::vector<std::string>;
using Values = std::vector<std::vector<float>>;

const char* const kUpdatesJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 4}
table_defaults = {trainable = false}
layer = [
  {name = "top", type = "mlp", inputs = ["dense", "pooled"], options = {widths = [8, 1]}}]
head = [
  {name = "click", input = "top"}]
dense_optimizer = {name = "adam", learning_rate = 0.01}
data = {reader = "synthetic", columns = 2, rows = [50, 20], dense = 3, samples = 320, test_samples = 40, batch = 20}
)";

class DenseUpdates : public test::JobTest {
 protected:
  DenseUpdates() : JobTest(kUpdatesJob) {}
  static Values values_of(TrainJob& job) {
    Values out;
    for (const ParameterPtr& p : job.trainer().layers().parameters()) out.push_back(p->value.to_vector<float>());
    return out;
  }
  Values after(const Sets& set, const TrainJobOptions& options = {}) const { return values_of(*trained(options, set)); }
};

double largest_difference(const Values& a, const Values& b) {
  double out = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t k = 0; k < a[i].size(); ++k) out = std::max(out, std::abs(double{a[i][k]} - b[i][k]));
  }
  return out;
}

TEST_F(DenseUpdates, SeveralBatchesAreOneLargeOne) {
  const Values large = after({"data.batch=80", "data.epochs=2"});
  EXPECT_LT(largest_difference(after({"data.batch=20", "data.epochs=2", "job.accumulate=4"}), large), 2e-6);
  EXPECT_LT(largest_difference(after({"data.batch=40", "data.epochs=2", "job.accumulate=2"}), large), 2e-6);
  EXPECT_GT(largest_difference(after({"data.batch=20", "data.epochs=2"}), large), 1e-2);
}

TEST_F(DenseUpdates, TheEndDoesNotWaitForMore) {
  const Values large = after({"data.batch=320"});
  EXPECT_LT(largest_difference(after({"data.batch=20", "job.accumulate=16"}), large), 2e-6);
  EXPECT_LT(largest_difference(after({"data.batch=20", "job.accumulate=1000"}), large), 2e-6);
}

// A run that goes on from a checkpoint is the same run.
TEST_F(DenseUpdates, GoOnFromACheckpoint) {
  for (const Sets& set : {Sets{"job.accumulate=2"}, Sets{"job.ema=0.9"}, Sets{"job.accumulate=3", "job.ema=0.99"},
                          Sets{"job.ema=0.9", "dense_optimizer.name=sgd"}}) {
    const std::string half = file("half");
    TrainJobOptions options{.save = file("whole"), .save_every = 6, .overwrite = true};
    const Values whole = after(set, options);
    (void)after(set, {.save = half, .overwrite = true, .max_steps = 6});
    options.load = half;
    options.save = file("rest");
    const Values rest = after(set, options);
    EXPECT_EQ(whole, rest) << set[0];
  }
  EXPECT_THAT(test::refusal([&] {
                (void)after({"job.accumulate=4"}, {.save = file("whole"), .save_every = 6, .overwrite = true});
              }),
              HasSubstr("--save-every 6 is not a multiple of job.accumulate = 4, after which the layers "
                        "are updated: take 8"));
}

TEST_F(DenseUpdates, ACheckpointWithAveragesNeedsThem) {
  for (const char* optimizer : {"adam", "sgd"}) {
    const std::string name = str_cat("dense_optimizer.name=", optimizer);
    (void)after({"job.ema=0.9", name}, {.save = file("averaged"), .overwrite = true});
    EXPECT_THAT(test::refusal([&] { (void)after({name}, {.load = file("averaged")}); }),
                HasSubstr("which job.ema made, but this job makes none: set job.ema"));
  }
  // Averages may begin at any time.
  (void)after({}, {.save = file("plain"), .max_steps = 8});
  EXPECT_NE(after({"job.ema=0.9"}, {.load = file("plain")}), after({}, {.load = file("plain")}));
}

TEST_F(DenseUpdates, AveragesAreJudged) {
  const auto job = trained({}, {"job.ema=0.9"});
  const double averaged = job->evaluate().metrics["logloss"];
  const Values averages = values_of(*job), last = after({});
  EXPECT_NE(averages, last);
  EXPECT_LT(largest_difference(averages, last), 0.2);
  EXPECT_NE(averaged, trained({})->evaluate().metrics["logloss"]);
  EXPECT_EQ(values_of(*job), averages);
}

TEST_F(DenseUpdates, WrongNumbersAreRefused) {
  for (const char* set : {"job.accumulate=0", "job.ema=1", "job.ema=-0.5"}) {
    EXPECT_THAT(test::refusal([&] { (void)trained({}, {set}); }),
                HasSubstr(std::string(set).substr(0, std::string(set).find('='))));
  }
}

TEST(AveragingOptimizerTest, FollowsItsFormula) {
  const auto p = std::make_shared<Parameter>();
  p->name = "w";
  p->value = Tensor::from<float>({1, -2});
  const auto optimizer_of = [&] {
    SgdOptions sgd{.lr = 0.5};
    return AveragingOptimizer(make_sgd(sgd, {p}), 0.15);
  };
  AveragingOptimizer optimizer = optimizer_of();
  double value = 1, average = 1;
  const double decays[] = {0.15, 0.15, 0.15};  // (1 + n) / (10 + n) is larger from n = 1 on: 2 / 11
  for (const double decay : decays) {
    optimizer.show(false);
    EXPECT_FLOAT_EQ(p->value.to_vector<float>()[0], static_cast<float>(value));
    p->grad = Tensor::from<float>({1, 0});
    optimizer.step();
    value -= 0.5;
    average += (1 - decay) * (value - average);
    optimizer.show(true);
    EXPECT_FLOAT_EQ(p->value.to_vector<float>()[0], static_cast<float>(average));
    EXPECT_FLOAT_EQ(p->value.to_vector<float>()[1], -2);
  }
  const auto state = optimizer.state();
  ASSERT_EQ(state.size(), 1U);
  AveragingOptimizer again = optimizer_of();
  again.set_state("w", state[0].second);
  again.show(false);
  EXPECT_FLOAT_EQ(p->value.to_vector<float>()[0], static_cast<float>(value));
}

}  // namespace
}  // namespace tessera
