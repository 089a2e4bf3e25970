// Tests a job on arriving rows: it trains exactly as on files, resumes at the right row, ends, waits and publishes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "publishing/publication.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using nlohmann::json;
using test::runtime;
using testing::HasSubstr;
namespace fs = std::filesystem;

const char* const kArrivingJob = R"toml(
job = {seed = 3, kernel_plugin = "cpu"}
model = {embedding_dim = 4, bottom_mlp = [4], top_mlp = [8, 1]}
data = {reader = "growing?end=DONE&time=at(csv)", batch = 16, shuffle = false, test_fraction = 0}
metrics = {training = ["auc?bins=100", "logloss"], window = 64}
publish = {every_s = 0}
column = [
  {name = "click", as = "label"},
  {name = "price", as = "dense", missing = 0},
  {name = "film", ids = "hash", rows = 50},
  {name = "tags", ids = "row", rows = 20, separator = " "}]
)toml";

class Arriving : public test::JobTest {
 protected:
  Arriving() : JobTest(kArrivingJob, {"cpu"}) { fs::create_directories(file("in")); }
  // Returns rows [first, first + rows) of one fixed sequence.
  static std::string rows(int first, int rows) {
    std::string out = "click,price,film,tags,at\n";
    for (int i = first; i < first + rows; ++i)
      out += str_cat(i * i % 7 < 3 ? 1 : 0, ',', i % 5, ",film ", i % 31, ',', i % 20, ' ', (i * 3) % 20, ',', 1000 + i,
                     '\n');
    return out;
  }
  void arrive(const std::string& name, const std::string& text) const {
    std::ofstream(file(".new")) << text;
    fs::rename(file(".new"), file("in/" + name));
  }
  std::unique_ptr<TrainJob> job(std::vector<std::string> set = {}, const TrainJobOptions& options = {}) const {
    set.insert(set.begin(), "data.path=\"" + file("in") + "\"");
    return JobTest::job(options, set);
  }
  static json report_of(TrainJob& job, const TrainWatch& watch = {}) {
    EXPECT_FALSE(job.train(watch).stopped);
    return json::parse(to_json(job.report({})));
  }
  std::string failure(const std::vector<std::string>& set, const TrainJobOptions& options = {}) const {
    return test::refusal([&] { job(set, options)->train({}); });
  }
};

TEST_F(Arriving, FilesThatComeAreTrainedOnAsOneFileOfThem) {
  for (int i = 0; i < 4; ++i) arrive(str_cat("part-", i, ".csv"), rows(24 * i, 24));
  arrive("DONE", "");
  const auto arriving = job();
  EXPECT_FALSE(arriving->start().steps);
  const json got = report_of(*arriving);
  EXPECT_EQ(got["steps"], 6);
  fs::create_directories(file("whole"));
  std::ofstream(file("whole/all.csv")) << rows(0, 96);
  const json files = report_of(*job({"data.reader=csv", "data.path=\"" + file("whole") + "\""}));
  EXPECT_EQ(got["losses"], files["losses"]);
  // progressive: each batch is evaluated before training on it
  EXPECT_EQ(got["train"]["metrics"], files["train"]["metrics"]);
  EXPECT_TRUE(got["train"]["metrics"].contains("lifetime_auc?bins=100")) << got["train"]["metrics"];
  const json& arrived = got["arrived"];
  EXPECT_EQ(arrived["rows"], 96);
  json position = arrived["position"];
  EXPECT_GT(position["looked"], 1e9);
  position.erase("looked");
  EXPECT_EQ(position, json::parse(R"({"file": "part-3.csv", "rows": 24, "whole": true})"));
  EXPECT_EQ(arrived["event_times"]["rows"], 96);
  EXPECT_EQ(arrived["event_times"]["first"], 1000);
  EXPECT_EQ(arrived["event_times"]["newest"], 1095);
  EXPECT_EQ(arrived["event_times"]["late_rows"], 0);
}

TEST_F(Arriving, GoesOnToTheRow) {
  arrive("a.csv", rows(0, 40));
  arrive("b.csv", rows(40, 40));
  arrive("DONE", "");
  const json whole = report_of(*job());
  const std::string saved = file("saved");
  const json first = report_of(*job({}, {.save = saved, .max_steps = 3}));  // stops in the middle of b.csv
  EXPECT_EQ(first["arrived"]["position"]["rows"], 8);
  fs::remove(file("in/a.csv"));  // no longer needed
  const auto second = job({}, {.save = saved, .resume = true});
  EXPECT_EQ(second->start().first_step, 3);
  const json rest = report_of(*second);
  std::vector<double> losses = first["losses"];
  for (const double loss : rest["losses"]) losses.push_back(loss);
  EXPECT_EQ(losses, whole["losses"].get<std::vector<double>>());
  const json nothing = report_of(*job({}, {.save = saved, .resume = true}));
  EXPECT_EQ(nothing["steps"], 0);
}

TEST_F(Arriving, ASignalEndsTheWaitAndWhatWasTrainedIsSaved) {
  arrive("a.csv", rows(0, 20));
  const auto waiting = job({}, {.save = file("saved")});
  int64_t done = 0;
  const TrainResult& run = waiting->train({.stop = [&] { return done == 2; },  // the second batch has 4 rows
                                           .due =
                                               [&](int64_t step) {
                                                 done = step;
                                                 return false;
                                               }});
  EXPECT_TRUE(run.stopped);
  EXPECT_EQ(run.steps_done, 2);
  arrive("b.csv", rows(20, 16));
  arrive("DONE", "");
  const TrainJobOptions on{.save = file("saved"), .resume = true};
  EXPECT_THAT(failure({"data.reader=\"growing?end=DONE&time=at(tsv)\""}, on),
              HasSubstr("of other data than this job's"));
  const std::vector<std::string> other_options = {"data.reader=\"growing?end=DONE&idle_s=60(csv?quotes=false)\""};
  EXPECT_EQ(report_of(*job(other_options, on))["arrived"]["rows"], 16);
}

TEST_F(Arriving, WhatTheLastStepsLeftIsPublishedWhileItWaits) {
  arrive("a.csv", rows(0, 32));
  const std::string to = file("published");
  std::vector<int64_t> steps;
  const auto running = job({"publish.directory=\"" + to + "\"", "publish.every_s=0.05"});
  const TrainResult& run = running->train({.stop = [&] { return !steps.empty() && steps.back() == 3; },
                                           .published =
                                               [&](const TrainPublish& p) {
                                                 EXPECT_EQ(p.error, "");
                                                 steps.push_back(p.step);
                                                 if (steps.size() == 1) arrive("b.csv", rows(32, 16));
                                               }});
  EXPECT_TRUE(run.stopped) << "the last step was published before the end";
  EXPECT_EQ(publishing::publications_in(to, publishing::Publication::kDelta).back(), 3);
}

TEST_F(Arriving, WrongUseIsOneSentence) {
  EXPECT_THAT(failure({"validation.fraction=0.1"}), HasSubstr("validation.fraction keeps rows back"));
  EXPECT_THAT(failure({"data.limit=10"}), HasSubstr("data.limit has no effect on rows that arrive"));
  EXPECT_THAT(failure({"data.order_by=at"}), HasSubstr("data.order_by has no effect"));
  EXPECT_THAT(failure({"data.path=\"/nowhere\""}), HasSubstr("there is no directory /nowhere"));
  EXPECT_THAT(failure({"data.reader=growing"}), HasSubstr("as in growing(csv)"));
  std::ofstream(file("in/a.csv")) << "click,price,film,tags\n1,2,x,99\n";
  EXPECT_THAT(failure({"data.reader=\"growing(csv)\"", "table_defaults.bounds_check=fatal"}),
              HasSubstr("a.csv, row 1, column \"tags\""));
  Config config = parse_config(kArrivingJob, "job.toml", {"data.path=\"" + file("in") + "\""});
  EXPECT_THAT(test::refusal([&] { (void)read_dataset(runtime(), config); }),
              HasSubstr("have no end: only tessera train takes them"));
  config.columns[2].ids = "vocabulary";
  config.columns[2].rows = 0;
  EXPECT_THAT(
      test::refusal([&] { const TrainJob learning(runtime(), config, {}, ProcessGroup::connect(runtime(), {})); }),
      HasSubstr("[[column]] \"film\" learns from all training rows"));
}

}  // namespace
}  // namespace tessera
