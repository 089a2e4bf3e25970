// Drives a job from a config the way a C++ program does: how far it trains, what it saves, how it resumes.
#include "tessera/train_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "tessera/abi/sharder.h"
#include "train/job_model.h"
#include "train/same_job.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

const char* const kPlainJob = R"(
job = {seed = 3, kernel_plugin = "reference", pipeline = true}
model = {embedding_dim = 4, bottom_mlp = [8, 4], top_mlp = [8, 1]}
data = {columns = 2, rows = [50, 20], dense = 3, samples = 96, test_samples = 40, batch = 16, epochs = 2}
)";

TEST(SameJob, NamesTheFirstDifference) {
  const auto job = [](const std::string& rows, const TrainJobOptions& options = {}) {
    return common_job(parse_config("[data]\nreader = \"csv\"\npath = \"here\"\ntest = \"file:x\"\n[[column]]\nname = "
                                   "\"film\"\nrows = " +
                                       rows + "\n",
                                   "job.toml"),
                      options);
  };
  EXPECT_EQ(first_difference(job("5"), job("5")), "");
  EXPECT_EQ(first_difference(job("5"), job("6")), "[[column]] name = [\"film\"]: rows = 5 instead of rows = 6");
  EXPECT_THAT(first_difference(job("5", {.save_best = "best"}), job("5")),
              StartsWith("--save-best DIR instead of nothing"));
  EXPECT_THAT(first_difference(job("5", {.save = "a", .keep = 3}), job("5", {.save = "b"})),
              StartsWith("--keep 3 instead of --keep 2"));
}

class Job : public test::JobTest {
 protected:
  Job() : JobTest(kPlainJob) {}
  std::string saved() const { return file("saved"); }
};

TEST_F(Job, SaysThatRepeatedRowsOfDataParallelTablesDoNotTravel) {
  if (!runtime().has(TSR_SHARDER_KIND, "data_parallel")) GTEST_SKIP() << "no sharder data_parallel is built here";
  const std::string once = "table_defaults.use_index_dedup=true";
  EXPECT_THAT(job({}, {once, "table_defaults.sharding=data_parallel"})->start().warnings,
              ElementsAre(StartsWith("use_index_dedup of table \"c0\" has no effect"), HasSubstr("table \"c1\"")));
  EXPECT_THAT(job({}, {once, "table_defaults.sharding=table_wise"})->start().warnings, ElementsAre());
}

TEST_F(Job, GoesOnFromWhereItWasStoppedToTheBit) {
  const auto whole = job({});
  EXPECT_EQ(whole->start().steps, 12);
  const TrainResult& all = whole->train({});
  EXPECT_EQ(all.steps_done, 12);
  EXPECT_FALSE(all.stopped);
  const auto part = job({.save = saved()});
  std::atomic<int> asked = 0;
  const TrainResult& stopped = part->train({.stop = [&] { return ++asked > 4; }});
  EXPECT_TRUE(stopped.stopped);
  const int64_t done = stopped.steps_done;
  ASSERT_GT(done, 0);  // the pipeline also calls stop(), at any time
  ASSERT_LT(done, 12);
  const auto rest = job({.load = saved()});
  EXPECT_EQ(rest->start().first_step, done);
  rest->train({});
  std::vector<double> both = losses_of(*part);
  for (const double loss : losses_of(*rest)) both.push_back(loss);
  EXPECT_EQ(both, losses_of(*whole));
}

TEST_F(Job, TellsItsWatchWhatItAsksFor) {
  std::vector<int64_t> steps, epochs;
  const auto one = job({});
  one->train({.due = [](int64_t step) { return step % 5 == 0; },
              .report =
                  [&](const TrainProgress& p) {
                    steps.push_back(p.step);
                    epochs.push_back(p.epoch);
                    EXPECT_EQ(p.samples, 16 * p.step);
                    EXPECT_GT(p.loss, 0);
                  }});
  EXPECT_THAT(steps, ElementsAre(5, 10));
  EXPECT_THAT(epochs, ElementsAre(0, 1));
  EXPECT_DEATH(one->train({}), "a job trains once");
}

TEST_F(Job, StepsAreAsManyAsIsSaid) {
  for (const int64_t most : {0, 5, 100}) {
    const auto one = job({.max_steps = most});
    EXPECT_EQ(one->train({}).steps_done, std::min<int64_t>(most, 12));
    EXPECT_EQ(one->evaluate().metrics.samples, 40);
  }
}

// Tests the vector width of a factorization machine.
TEST_F(Job, LayersTakeTheTablesDim) {
  const std::string data = "[data]\ncolumns = 3\nrows = [20]\nsamples = 64\ntest_samples = 32\nbatch = 16\n";
  const auto graph = [&](const std::string& options, const std::vector<std::string>& set = {}) {
    const std::string layer = "[[layer]]\nname = \"fm\"\ntype = \"fm\"\ninputs = [\"pooled\"]\n" + options +
                              "[[head]]\nname = \"click\"\ninput = \"fm\"\n";
    const Config config = parse_config("[job]\nkernel_plugin = \"reference\"\n" + layer + data, "job.toml", set);
    const Dataset read = read_dataset(runtime(), config);
    return model_of(runtime(), config, tables_of(config, read.columns), std::ssize(read.dense)).layers.at(0).options;
  };
  EXPECT_EQ(graph("", {"model.embedding_dim=8"}), R"({"dim":8})");
  EXPECT_EQ(graph("options = { dim = 16 }\n"), R"({"dim":16})");
  EXPECT_EQ(graph("options = { dim = 1 }\n"), R"({"dim":1})") << "TorchRec's";
  EXPECT_THAT(
      test::refusal(Code::kInvalidArgument, [&] { graph("options = { dim = 16 }\n", {"model.embedding_dim=8"}); }),
      testing::AllOf(HasSubstr("the layer \"fm\" has dim = 16, but table \"c2\""),
                     HasSubstr("has embedding_dim 8: leave dim out of its options")));
}

TEST_F(Job, RefusesOtherDataThanItWasSavedWith) {
  job({.save = saved(), .max_steps = 2})->train({});
  EXPECT_THAT(test::refusal(Code::kInvalidArgument, [&] { job({.load = saved()}, {"job.seed=4"}); }),
              HasSubstr("seed = 3 instead of 4"));
  EXPECT_EQ(job({.load = saved(), .new_data = true}, {"job.seed=4"})->start().first_step, 0);
}

}  // namespace
}  // namespace tessera
