// Tests runs that start with another run's weights, frozen parameters, and training metrics, on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/test_refusal.h"
#include "tessera/abi/module.h"
#include "tessera/predictor.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::runtime;
using testing::Contains;
using testing::HasSubstr;
namespace fs = std::filesystem;

const char* const kWarmStartedJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
[model]
embedding_dim = 4
bottom_mlp = [8, 4]
top_mlp = [8, 1]
[data]
reader = "synthetic"
columns = 2
rows = [50, 20]
dense = 3
samples = 200
test_samples = 40
batch = 20
)";

class WarmStartedJob : public test::JobTest {
 protected:
  WarmStartedJob() : JobTest(kWarmStartedJob) {}
};

TEST_F(WarmStartedJob, BeginsWithTheWeightsAndNothingElse) {
  const std::string saved = file("saved");
  const double loss = trained({.save = saved}, {})->evaluate().metrics["logloss"];
  const auto same = trained({.start = saved, .max_steps = 0}, {});
  EXPECT_EQ(same->evaluate().metrics["logloss"], loss);
  ASSERT_EQ(same->start().notes.size(), 1u) << same->start().notes.at(1);
  EXPECT_THAT(same->start().notes[0], HasSubstr("begins with 2 of 2 tables and 8 of 8 parameters from " + saved));
  EXPECT_NE(trained({.max_steps = 0}, {})->evaluate().metrics["logloss"], loss);
  const auto on = trained({.start = saved}, {});
  EXPECT_EQ(on->start().first_step, 0);
  EXPECT_EQ(on->report({}).steps, 10);
  const auto grown = trained({.start = saved, .max_steps = 0}, {"data.rows=[60, 10]", "model.top_mlp=[9, 1]"});
  EXPECT_THAT(grown->start().notes, Contains(HasSubstr("table c0: 50 of 60 rows are there, the others start again")));
  EXPECT_THAT(grown->start().notes, Contains(HasSubstr("table c1: 10 of its 20 stored rows have no place here")));
  EXPECT_THAT(grown->start().notes[0], HasSubstr("begins with 2 of 2 tables and 5 of 8 parameters"));
  EXPECT_THROW(trained({.start = file("nothing")}, {}), Error);
}

// A checkpoint of changes with its base equals a full checkpoint of the same step. Their packed files are the same, and
// a run that starts with either begins at the same numbers.
TEST_F(WarmStartedJob, TakesChangesAndTheirBase) {
  const std::string often = file("often"), once = file("once");
  const std::vector<std::string> set = {"job.kernel_plugin=\"cpu\"", "data.rows=[5000, 20]",
                                        "table.c1.data_type=\"float16\"", "table.c0.sharding=[\"row_wise\"]",
                                        "data.epochs=100000"};
  // A job that is stopped some steps after its first checkpoint saves the changes since.
  TrainJob job(runtime(), parse_config(kWarmStartedJob, "job.toml", set),
               {.save = often, .save_every = 4, .save_full_every = 1000000}, ProcessGroup::connect(runtime(), {}));
  std::atomic<int> more = 0;  // the read-ahead thread also calls stop()
  const TrainResult& run = job.train({.stop = [&] { return fs::exists(often + "/save-1") && ++more > 3; }});
  ASSERT_TRUE(run.stopped);
  trained({.save = once, .max_steps = run.steps_done}, set);
  std::string changes, all = once + "/save-1";
  for (const auto& entry : fs::directory_iterator(often)) {
    if (entry.is_directory()) changes = std::max(changes, entry.path().string());
  }
  ASSERT_LT(fs::file_size(changes + "/model.safetensors"), fs::file_size(all + "/model.safetensors") / 5);
  const auto packed = [&](const std::string& from, RowFormat format) {
    const fs::path to = file("packed");
    fs::remove_all(to);
    pack_model(open_float_model(from).model, to.string(), {.format = format, .name = "m"});
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(to)) files[entry.path().filename()] = read_file(entry.path());
    return files;
  };
  for (const RowFormat format : {RowFormat::kFloat32, RowFormat::kFloat16, RowFormat::kInt8})
    EXPECT_TRUE(packed(changes, format) == packed(all, format)) << to_string(format);
  const auto begun = [&](const std::string& from) {
    const auto job = trained({.start = from, .max_steps = 0}, set);
    EXPECT_THAT(job->start().notes, testing::ElementsAre(HasSubstr("begins with 2 of 2 tables and 8 of 8 parameters")));
    return job->evaluate().metrics["logloss"];
  };
  EXPECT_EQ(begun(changes), begun(all));

  fs::rename(often + "/save-1", file("aside"));
  for (const auto& read :
       {std::function<void()>([&] { open_float_model(changes); }), std::function<void()>([&] { begun(changes); })}) {
    EXPECT_THAT(test::refusal([&] { read(); }), HasSubstr("save-1 is not there: both are needed, next to each other"));
  }
}

// Rows of "q" are the logarithms of the frequencies of the ids of "c0" in the training rows.
TEST_F(WarmStartedJob, TablesOfFrequencies) {
  std::string job_text = kWarmStartedJob;
  const size_t of_dlrm = job_text.find("bottom_mlp");  // models of [[layer]]s do not have it
  job_text.erase(of_dlrm, job_text.find("[data]") - of_dlrm);
  const std::string text = str_cat(R"(
table = [
  {name = "c0"},
  {name = "q", features = ["c0"], embedding_dim = 1, init = "log_frequency", trainable = false}]
layer = [{name = "top", type = "mlp", inputs = ["dense", "c0", "q"], options = {widths = [1]}}]
head = [{name = "click", input = "top"}]
)",
                                   job_text, "index_dist = \"zipf:1.2\"\n");
  const auto job_of = [&](const std::vector<std::string>& set) {
    return std::make_unique<TrainJob>(runtime(), parse_config(text, "job.toml", set), TrainJobOptions(),
                                      ProcessGroup::connect(runtime(), {}));
  };
  const auto job = job_of({});
  job->train({});
  std::vector<double> counts(50);
  BatchReader reader(job->data().train, {.batch = 200});
  for (Batch batch; reader.next(batch);) {
    for (const int32_t id : batch.sparse["c0"].values().span<int32_t>()) counts[static_cast<size_t>(id)] += 1;
  }
  ShardedEmbeddings& tables = job->trainer().embeddings();
  for (const HeldShard& shard : tables.held_shards()) {
    if (shard.table != "q") continue;
    std::vector<float> rows(50);
    std::vector<std::vector<float>> values;
    std::vector<float*> states;
    values.assign(tables.state_layout(shard).size(), std::vector<float>(50));
    for (auto& v : values) states.push_back(v.data());
    tables.read_rows(shard, 0, 50, rows.data(), states, nullptr);
    for (size_t r = 0; r < rows.size(); ++r)
      EXPECT_FLOAT_EQ(rows[r], static_cast<float>(std::log(std::max(counts[r], 1.0) / 200))) << "row " << r;
    counts.clear();
  }
  EXPECT_TRUE(counts.empty()) << "there is a table q";
  EXPECT_THROW(job_of({"table.q.embedding_dim=4"}), Error);
  EXPECT_THROW(job_of({"table.q.init_range=0.1"}), Error);
}

TEST_F(WarmStartedJob, FrozenTablesStay) {
  const std::vector<std::string> still = {"schedule.dense=[\"constant?factor=0\"]"};
  const double before = trained({.max_steps = 0}, {})->evaluate().metrics["logloss"];
  std::vector<std::string> frozen = still;
  frozen.emplace_back("table_defaults.trainable=false");
  EXPECT_EQ(trained({}, frozen)->evaluate().metrics["logloss"], before);
  EXPECT_NE(trained({}, still)->evaluate().metrics["logloss"], before);
  frozen.back() = "table.c0.trainable=false";
  EXPECT_NE(trained({}, frozen)->evaluate().metrics["logloss"], before) << "the other table learns";
}

// Each batch is evaluated before it is learned from, so the mean loss is the steps' loss.
TEST_F(WarmStartedJob, TrainingBatchesAreJudged) {
  const auto job = trained({}, {"metrics.training=[\"logloss\", \"auc?bins=100\"]", "metrics.window=60"});
  const json report = json::parse(to_json(job->report(job->evaluate())));
  const auto losses = report.at("losses").get<std::vector<double>>();
  ASSERT_EQ(losses.size(), 10u);
  const json metrics = report.at("train").at("metrics");
  EXPECT_NEAR(metrics.at("lifetime_logloss").get<double>(), std::accumulate(losses.begin(), losses.end(), 0.0) / 10,
              1e-6);
  EXPECT_NEAR(metrics.at("window_logloss").get<double>(), (losses[7] + losses[8] + losses[9]) / 3, 1e-6);
  EXPECT_GT(metrics.at("lifetime_auc?bins=100").get<double>(), 0);
  EXPECT_THROW(trained({}, {"metrics.training=[\"auc\"]"}), Error);
}

}  // namespace
}  // namespace tessera
