// Tests validation, the best checkpoint, early stopping, learning rate schedules and their log, in whole jobs.
#include "train/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "train/job_setup.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

Validation with_auc(int64_t step, double auc) {
  Validation v{step, {}};
  v.metrics.values = {{"auc", auc}};
  return v;
}

TEST(ValidationScores, TheBestByMonitorAndDelta) {
  ValidationConfig config{.patience = 2, .min_delta = 0.01};
  ValidationScores scores(config, HeadMetrics({Prediction()}));
  EXPECT_TRUE(scores.add(with_auc(1, 0.6)));
  EXPECT_FALSE(scores.add(with_auc(2, 0.605)));
  EXPECT_TRUE(scores.add(with_auc(3, 0.62)));
  EXPECT_FALSE(scores.add(with_auc(4, std::nan(""))));
  EXPECT_FALSE(scores.exhausted());
  EXPECT_FALSE(scores.add(with_auc(5, 0.62)));
  EXPECT_TRUE(scores.exhausted());
  EXPECT_EQ(scores.best()->step, 3);
}

TEST(ValidationScores, WithoutPatienceItGoesOn) {
  ValidationScores scores({}, HeadMetrics({Prediction()}));
  for (int64_t step = 0; step < 100; ++step) scores.add(with_auc(step, 0.5));
  EXPECT_FALSE(scores.exhausted());
}

const char* const kValidatedJob = R"(
job = {seed = 3, kernel_plugin = "reference"}
model = {embedding_dim = 4, bottom_mlp = [8, 4], top_mlp = [8, 1]}
validation = {fraction = 0.2}
data = {columns = 2, rows = [50, 20], dense = 3, samples = 200, test_samples = 40, batch = 16, epochs = 3}
)";

class ValidatedJob : public test::JobTest {
 protected:
  ValidatedJob() : JobTest(kValidatedJob) {}
  std::vector<double> losses_of(const std::vector<std::string>& set) const {
    return JobTest::losses_of(*trained({}, set));
  }
};

TEST_F(ValidatedJob, ValidatesBehindEpochsOrStepsAndTrainsAsWithout) {
  const auto one = job({}, {});
  std::vector<int64_t> steps;
  const TrainResult& run = one->train({.validated = [&](const TrainValidation& v) { steps.push_back(v.step); }});
  const int64_t per_epoch = one->start().steps.value() / 3;
  EXPECT_THAT(steps, ElementsAre(per_epoch, 2 * per_epoch, 3 * per_epoch));
  const int64_t kept = run.validations.front().metrics.samples;
  EXPECT_EQ(one->data().train_rows() + kept, 200);
  const json report = json::parse(to_json(one->report(one->evaluate())));
  EXPECT_EQ(report.at("validations").size(), 3u);
  EXPECT_EQ(report.at("validations")[2].at("samples"), kept);
  EXPECT_EQ(losses_of({"validation.every_steps=2"}), report.at("losses").get<std::vector<double>>());
}

// save_best holds the model that validated best, and no later one.
TEST_F(ValidatedJob, KeepsTheBest) {
  const std::string best = file("best");
  const auto one = job({.save_best = best}, {"validation.every_steps=3", "validation.monitor=logloss"});
  const TrainResult& run = one->train({});
  const TrainValidation* wanted = nullptr;
  for (const TrainValidation& v : run.validations) {
    if (v.best) wanted = &v;
  }
  ASSERT_NE(wanted, nullptr);
  ASSERT_LT(wanted->step, one->start().steps) << "a later one is worse, or this tells nothing";
  const TestResult tested = one->evaluate();
  EXPECT_EQ(tested.step, wanted->step);
  EXPECT_EQ(json::parse(to_json(one->report(tested))).at("test_step"), wanted->step);
  const auto again = job({.load = best, .max_steps = wanted->step}, {"validation.every_steps=1000"});
  EXPECT_EQ(again->start().first_step, wanted->step);
  EXPECT_EQ(again->train({}).steps_done, 0);
  const TestResult same = again->evaluate();
  EXPECT_EQ(same.metrics.values, tested.metrics.values) << "the test is of the model in save_best";
  EXPECT_EQ(same.step, wanted->step);
}

// The model that validated best is tested and is the last checkpoint, also after a run that was resumed. The folder
// that kept it goes.
TEST_F(ValidatedJob, RestoresTheBest) {
  const std::vector<std::string> settings = {"validation.every_steps=3", "validation.monitor=logloss",
                                             "validation.restore_best=true"};
  const std::string best = file("best"), saved = file("saved");
  const auto kept = job({.save_best = best}, {settings[0], settings[1]});
  kept->train({});
  const TestResult wanted = kept->evaluate();
  ASSERT_LT(wanted.step, kept->start().steps) << "a later one is worse, or this tells nothing";
  ASSERT_GT(wanted.step, 3) << "the run that resumes below validates after step 3";

  const auto one = job({}, settings);
  one->train({});
  EXPECT_FALSE(fs::exists(one->start().save_best)) << "a temporary folder, which goes when training ends";
  const TestResult tested = one->evaluate();
  EXPECT_EQ(tested.metrics.values, wanted.metrics.values);
  EXPECT_EQ(tested.step, wanted.step);

  job({.save = saved, .max_steps = 4}, {settings[0], settings[1]})->train({});
  const auto rest = job({.save = saved, .resume = true}, settings);
  rest->train({});
  EXPECT_EQ(rest->evaluate().metrics.values, wanted.metrics.values);
  EXPECT_FALSE(fs::exists(saved + ".best-so-far"));
  const auto loaded = job({.save = saved, .resume = true}, settings);
  loaded->train({});
  EXPECT_EQ(loaded->start().first_step, kept->start().steps);
  EXPECT_EQ(loaded->evaluate().metrics.values, wanted.metrics.values);
}

// A run that continues and finds nothing better tests the previous run's best model. It leaves other runs' models
// alone.
TEST_F(ValidatedJob, TestsTheBestOfTheRunBefore) {
  const std::string saved = file("saved"), best = file("best");
  const std::vector<std::string> settings = {"validation.every_steps=1", "validation.min_delta=10"};
  job({.save = saved, .save_best = best, .max_steps = 2}, settings)->train({});
  const auto rest = job({.save = saved, .resume = true, .save_best = best}, settings);
  rest->train({});
  EXPECT_EQ(rest->evaluate().step, 1);
  EXPECT_THROW(job({.save_best = best, .max_steps = 0}, settings), Error);
  const auto other = job({.overwrite = true, .save_best = best, .max_steps = 0}, settings);
  other->train({});
  EXPECT_EQ(other->evaluate().step, 0);
}

TEST_F(ValidatedJob, ValidatesEveryPartOfAnEpoch) {
  const auto steps_with = [&](const char* every) {
    const auto one = job({}, {str_cat("validation.every_epochs=", every)});
    std::vector<int64_t> out;
    for (const TrainValidation& v : one->train({}).validations) out.push_back(v.step);
    return std::pair(out, one->start().steps.value());
  };
  EXPECT_THAT(steps_with("2").first, ElementsAre(20, 30)) << "and behind the last step";
  const auto [quarters, steps] = steps_with("0.25");
  ASSERT_EQ(steps, 30);
  EXPECT_THAT(quarters, ElementsAre(3, 5, 8, 10, 13, 15, 18, 20, 23, 25, 28, 30));
  EXPECT_EQ(steps_with("0.000001").first.size(), 30u);
}

TEST_F(ValidatedJob, KnowsWhatWasBestWhenItGoesOn) {
  const std::vector<std::string> settings = {"validation.every_steps=1", "validation.patience=2",
                                             "validation.min_delta=10", "data.epochs=9"};
  const std::string saved = file("saved");
  job({.save = saved, .max_steps = 2}, settings)->train({});  // two validations: the second is not better
  const auto rest = job({.save = saved, .resume = true}, settings);
  EXPECT_EQ(rest->start().first_step, 2);
  const TrainResult& run = rest->train({});
  EXPECT_TRUE(run.ended_early);
  EXPECT_EQ(run.validations.size(), 1u);
  EXPECT_FALSE(run.validations[0].best);
  const auto again = job({.save = saved, .resume = true}, settings);
  const TrainResult& none = again->train({});
  EXPECT_TRUE(none.ended_early);
  EXPECT_EQ(none.steps_done, 0) << "it had ended early already";
  std::vector<std::string> patient = settings;
  patient.push_back("validation.patience=3");
  const auto on = job({.save = saved, .resume = true}, patient);
  EXPECT_EQ(on->train({}).validations.size(), 1u);
}

TEST_F(ValidatedJob, EndsWhereItGetsNoBetter) {
  const auto one =
      job({}, {"validation.every_steps=1", "validation.patience=2", "validation.min_delta=10", "data.epochs=9"});
  const TrainResult& run = one->train({});
  EXPECT_TRUE(run.ended_early);
  EXPECT_FALSE(run.stopped);
  EXPECT_EQ(run.validations.size(), 3u);
  EXPECT_GE(run.steps_done, 3);
  EXPECT_LT(run.steps_done, 10);
}

TEST_F(ValidatedJob, SchedulesMultiplyLearningRates) {
  const std::vector<double> half =
      losses_of({"table_defaults.optimizer.learning_rate=0.05", "dense_optimizer.learning_rate=0.01"});
  EXPECT_EQ(losses_of({"table_defaults.optimizer.learning_rate=0.1", "dense_optimizer.learning_rate=0.02",
                       "schedule.tables=[\"constant?factor=0.5\"]", "schedule.dense=[\"constant?factor=0.5\"]"}),
            half);
  EXPECT_NE(losses_of({"table_defaults.optimizer.learning_rate=0.05", "dense_optimizer.learning_rate=0.01",
                       "schedule.dense=[\"linear?steps=10\"]"}),
            half);
  const auto still = job({}, {"schedule.tables=[\"constant?factor=0\"]", "schedule.dense=[\"constant?factor=0\"]"});
  const std::vector<TrainValidation>& validations = still->train({}).validations;
  EXPECT_EQ(validations.front().metrics["logloss"], validations.back().metrics["logloss"]);
}

TEST_F(ValidatedJob, LogsALineForEach) {
  const std::string path = file("metrics.jsonl");
  const auto one = job({}, {"report.metrics=" + path, "schedule.tables=[\"linear?steps=10\"]"});
  one->train({.due = [](int64_t step) { return step == 5; }});
  std::vector<json> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("step"), 5);
  EXPECT_NEAR(lines[0].at("table_rate").get<double>(), 0.4, 1e-12);
  EXPECT_GT(lines[0].at("loss").get<double>(), 0);
  EXPECT_EQ(lines[1].at("validation").at("auc"), one->report({}).validations.front().metrics["auc"]);
  EXPECT_EQ(lines[1].at("best"), true);
}

uint64_t number_at(const std::string& bytes, size_t at, size_t size) {
  uint64_t out = 0;
  std::memcpy(&out, bytes.data() + at, size);
  return out;
}

// Splits records the way TensorBoard's reader does. The first length's checksum was computed by another program.
TEST_F(ValidatedJob, WritesAnEventFile) {
  const fs::path runs = file("runs");
  const auto one = job({}, {"report.tensorboard=" + runs.string()});
  one->train({.due = [](int64_t step) { return step == 5; }});
  ASSERT_EQ(std::distance(fs::directory_iterator(runs), fs::directory_iterator()), 1);
  const fs::path path = fs::directory_iterator(runs)->path();
  EXPECT_THAT(path.filename().string(), testing::StartsWith("events.out.tfevents."));
  const std::string all = read_file(path);
  std::vector<std::string> events;
  for (size_t at = 0; at < all.size(); at += 16 + events.back().size()) {
    ASSERT_LE(at + 16, all.size());
    events.push_back(all.substr(at + 12, number_at(all, at, 8)));
  }
  ASSERT_EQ(events.size(), 1u + 3 + 3 * 4);
  EXPECT_EQ(number_at(all, 0, 8), 24u);
  EXPECT_EQ(number_at(all, 8, 4), 0x224b7fa3u);
  EXPECT_EQ(events[0].substr(9), std::string("\x1a\x0d") + "brain.Event:2");
  const std::string tag = std::string("\x0a\x0a") + "train/loss";
  EXPECT_EQ(events[1].substr(9), "\x10\x05\x2a\x13\x0a\x11" + tag + events[1].substr(events[1].size() - 5));
}

TEST_F(ValidatedJob, ClipsDenseGradients) {
  const std::vector<double> free = losses_of({});
  EXPECT_EQ(losses_of({"dense_optimizer.max_gradient_norm=1000"}), free);
  EXPECT_NE(losses_of({"dense_optimizer.name=sgd", "dense_optimizer.max_gradient_norm=0.01"}),
            losses_of({"dense_optimizer.name=sgd"}));
}

TEST_F(ValidatedJob, WhatCannotBeIsNamed) {
  const auto refused = [&](const TrainJobOptions& options, const std::vector<std::string>& set) {
    return test::refusal([&] { job(options, set); }, "it was taken");
  };
  EXPECT_EQ(refused({.save_best = "x"}, {"validation.fraction=0"}),
            "--save-best needs rows to validate on: set validation.fraction");
  EXPECT_EQ(refused({}, {"validation.restore_best=true", "publish.directory=x"}),
            "validation.restore_best replaces all rows at the end, and a published model follows the rows that change: "
            "set it to false, or leave out publish.directory");
  EXPECT_THAT(refused({.save = "kept", .save_best = "./kept"}, {}),
              HasSubstr("--save and --save-best are both kept, "));
  EXPECT_EQ(refused({}, {"validation.fraction=0", "validation.patience=2"}),
            "validation.patience needs rows to validate on: set validation.fraction");
  EXPECT_EQ(refused({}, {"validation.fraction=0", "validation.monitor=auc"}),
            "validation.monitor needs rows to validate on: set validation.fraction");
  EXPECT_THAT(refused({}, {"validation.fraction=0.001", "validation.split=last"}), HasSubstr(" and 0 to validate on"));
  EXPECT_THAT(refused({}, {"validation.monitor=acu"}),
              HasSubstr("validation.monitor: there is no metric \"acu\" here; the nearest is \"auc\""));
  EXPECT_THAT(refused({}, {"metrics.names=[\"gauc?key=c9\"]", "validation.monitor=\"gauc?key=c9\""}),
              HasSubstr("which is not a column of ids; the nearest is \"c"));
  EXPECT_THAT(refused({}, {"schedule.tables=[\"cosin\"]"}), HasSubstr("the nearest is \"cosine\""));
}

TEST(EvaluationBatch, IsTheJobsIfSamplesHaveSequences) {
  EXPECT_EQ(evaluation_batch(32, {{.name = "a", .pooling = "sum"}}), 1024);
  EXPECT_EQ(evaluation_batch(2000, {{.name = "a", .pooling = "sum"}}), 2000);
  EXPECT_EQ(evaluation_batch(32, {{.name = "a", .pooling = "sum"}, {.name = "b", .pooling = "none"}}), 32);
}

}  // namespace
}  // namespace tessera
