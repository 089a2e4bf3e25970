// Several labels, real values and sample weights, from the data to the losses of heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "graph_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::tasks_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 4}
[[layer]]
name = "shared"
type = "mlp"
inputs = ["dense", "pooled"]
options = {widths = [8], final_activation = "relu"}
[[layer]]
name = "clicks"
type = "linear"
inputs = ["shared"]
[[layer]]
name = "stars"
type = "linear"
inputs = ["shared"]
[[head]]
name = "click"
input = "clicks"
label = "click"
[[head]]
name = "stars"
input = "stars"
loss = "mse"
label = "rating"
weight = 0.5
[data]
reader = "prepared"
batch = 16
shuffle = false
)";

constexpr const char* kColumns = R"(
column = [
  {name = "user", rows = 13},
  {name = "film", rows = 11},
  {name = "age", as = "dense"},
  {name = "weight", as = "weight"},
  {name = ["click", "rating"], as = "label", real = true}]
)";

struct Sample {
  float click, rating, weight;
  int user, film;
};

class Tasks : public testing::Test, protected JobFile {
 protected:
  // Trains on the columns of rows.csv.
  Finished run_columns(const Arguments& more) const {
    folder_.write("job.toml", str_cat(kColumns, kJob, "test_fraction = 0\n"));
    return train(0, settings({"data.reader=csv", "data.path=" + file("rows.csv")}) + more);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (int i = 0; i < 128; ++i) {
      const int user = i * 7 % 13, film = i * 5 % 11;
      out.push_back({(user + film) % 3 == 0 ? 1.0f : 0.25f, static_cast<float>((user * film) % 5) + 1,
                     i % 4 == 3 ? 0.0f : 1.0f + static_cast<float>(i % 2), user, film});
    }
    return out;
  }
  static std::string lines(const std::vector<Sample>& samples) {
    std::string out;
    for (const Sample& s : samples)
      out += str_cat(s.click, ',', s.rating, ',', s.weight, '\t', s.user % 2, '\t', s.user, '\t', s.film, '\n');
    return out;
  }
  void write_data(const std::vector<Sample>& samples) const {
    folder_.write("meta.json", R"({"labels": ["click", "rating"], "sample_weights": true, "dense": ["age"],
      "columns": [{"name": "user", "rows": 13}, {"name": "film", "rows": 11}]})");
    folder_.write("train.tsv", lines(samples));
    folder_.write("test.tsv", lines({samples.begin(), samples.begin() + 50}));
  }
  json report_of(const Arguments& more) const {
    succeed(run(more));
    return report();
  }
  std::vector<double> losses(const std::vector<Sample>& samples, int ranks = 1) const {
    write_data(samples);
    return losses_of(report_of({"--nproc", str_cat(ranks)}));
  }
  Finished run(const Arguments& more) const {
    folder_.write("job.toml", kJob);
    return train(0, settings({"data.path=" + file("")}) + more);
  }
  std::vector<double> changed(const std::function<void(Sample&)>& change) {
    std::vector<Sample> all = samples();
    for (Sample& s : all) change(s);
    return losses(all);
  }
};

TEST_F(Tasks, LearnEachItsLabelByTheWeightsOfSamples) {
  const std::vector<double> usual = losses(samples());
  ASSERT_EQ(usual.size(), 8u);
  const std::vector<double> two = losses(samples(), 2);
  for (size_t i = 0; i < usual.size(); ++i) EXPECT_NEAR(two[i], usual[i], 1e-4 * usual[i]) << "step " << i;
  const auto of_nothing = [](Sample& s) {
    if (s.weight == 0) s.click = 1 - s.click, s.rating = -7;
  };
  EXPECT_EQ(changed(of_nothing), usual) << "a sample of weight 0 changes nothing";
  EXPECT_NE(changed([](Sample& s) { s.rating += 1; })[0], usual[0]) << "the second label is trained";
  EXPECT_NE(changed([](Sample& s) { s.click = 1 - s.click; })[0], usual[0]) << "and the first";
  const std::vector<double> doubled = changed([](Sample& s) { s.weight *= 2; });
  EXPECT_NEAR(doubled[0], 2 * usual[0], 1e-5 * doubled[0]);
}

// Computes the first loss by hand: values are 0 at the start except for small rows, so both losses are near those of 0.
TEST_F(Tasks, HaveTheLossesOfTheirFormulas) {
  std::vector<Sample> all = samples();
  const std::vector<double> once = losses(all);
  for (Sample& s : all) s.rating += 10;
  const double more = losses(all)[0] - once[0];
  double expected = 0;  // of 0.5 w ((y + 10)^2 - y^2)
  for (size_t i = 0; i < 16; ++i)
    expected +=
        0.5 * all[i].weight * (all[i].rating * all[i].rating - (all[i].rating - 10) * (all[i].rating - 10)) / 16;
  EXPECT_NEAR(more, expected, 0.1 * expected);
}

// Samples are weighted in both: the loss equals what the metrics of the heads say.
TEST_F(Tasks, AreEachJudgedByMetricsThatFit) {
  write_data(samples());
  const std::vector<std::string> more = {"--set", "metrics.training=[\"logloss\", \"stars.mse\"]", "--nproc", "2"};
  const json report = report_of(more);
  ASSERT_TRUE(report.is_object());
  double weights = 0;
  for (const Sample& s : samples()) weights += s.weight / 128;
  const json& training = report.at("train").at("metrics");
  const double loss =
      training.at("lifetime_click.logloss").get<double>() + 0.5 * training.at("lifetime_stars.mse").get<double>();
  EXPECT_NEAR(report.at("train").at("loss").get<double>(), weights * loss, 1e-5 * loss);
  std::vector<std::string> names;
  for (const auto& [name, value] : report.at("test").items()) names.push_back(name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("samples", "click.auc", "click.logloss", "click.normalized_entropy",
                                                   "click.calibration", "stars.rmse", "stars.mae", "seconds"));
}

TEST_F(Tasks, AreJudgedAlikeOnAnyNumberOfRanks) {
  write_data(samples());
  const std::vector<std::string> untrained = {
      "--max-steps", "0", "--set", "metrics.names=[\"rmse\", \"auc\", \"click.gauc?key=user\", \"stars.ctr\"]"};
  const json one = report_of(untrained).at("test");
  std::vector<std::string> three = untrained;
  three.insert(three.end(), {"--nproc", "3"});
  const json many = report_of(three).at("test");
  ASSERT_EQ(one.size(), 7u) << one;
  for (const char* name : {"click.rmse", "click.auc", "click.gauc?key=user", "stars.rmse", "stars.ctr"})
    EXPECT_NEAR(many.at(name).get<double>(), one.at(name).get<double>(), 1e-9) << name;
  double stars = 0, weights = 0;
  const std::vector<Sample> all = samples();
  for (size_t i = 0; i < 50; ++i) stars += all[i].weight * all[i].rating, weights += all[i].weight;
  EXPECT_NEAR(one.at("stars.ctr").get<double>(), stars / weights, 1e-9);
}

TEST_F(Tasks, AnyHeadSaysWhichValidationIsBest) {
  write_data(samples());
  const json report =
      report_of({"--set", "validation.fraction=0.3", "--set", "validation.monitor=stars.rmse", "--set",
                 "data.epochs=30", "--set", "validation.patience=2", "--set", "validation.min_delta=0.01"});
  ASSERT_TRUE(report.is_object());
  double least = 1e9;
  for (const json& v : report.at("validations")) {
    const double value = v.at("stars.rmse").get<double>();
    EXPECT_EQ(v.at("best").get<bool>(), value < least - (least < 1e9 ? 0.01 : 0));
    if (v.at("best").get<bool>()) least = value;
  }
  EXPECT_GT(report.at("validations").size(), 2u);
  EXPECT_LT(report.at("validations").size(), 30u);
  expect_refused(run({"--set", "validation.fraction=0.3", "--set", "validation.monitor=star.rmse"}),
                 HasSubstr("there is no metric \"star.rmse\" here; the nearest is \"stars.rmse\""));
}

// A model with only a ratings head: its scores are ratings.
TEST_F(Tasks, ValuesAreTrainedPackedAndPredicted) {
  write_data(samples());
  const std::string text = kJob;
  const size_t clicks = text.find("[[layer]]\nname = \"clicks\""), stars = text.find("[[layer]]\nname = \"stars\"");
  const size_t click = text.find("[[head]]\nname = \"click\""), rated = text.find("[[head]]\nname = \"stars\"");
  const std::string job =
      folder_.write("ratings.toml", text.substr(0, clicks) + text.substr(stars, click - stars) + text.substr(rated));
  const std::string path = "data.path=" + file("");
  succeed(run_tessera({"train", "--config", job, "--set", path, "--set", "data.epochs=5", "--save", file("saved"),
                       "--set", "report.json=" + file("report.json")},
                      60));
  const double rmse = json::parse(contents(file("report.json"))).at("test").at("rmse").get<double>();
  const std::string packed = succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp16",
                                      "--config", job, "--set", path});
  EXPECT_THAT(packed, HasSubstr("test: rmse "));
  const TestDirectory scores;  // in another folder than the data
  const std::string predicted = succeed({"predict", "--model", file("model"), "--config", job, "--set", path, "--part",
                                         "test", "--output", scores.file("scores.csv")});
  const size_t at = predicted.find("rmse ");
  ASSERT_NE(at, std::string::npos) << predicted;
  EXPECT_NEAR(std::stod(predicted.substr(at + 5)), rmse, 2e-3);
  EXPECT_THAT(contents(scores.file("scores.csv")), HasSubstr("row,label,score\n0,1,"));
}

// The same samples as columns of a file give the same losses, in memory or streamed.
TEST_F(Tasks, LabelsAndWeightsAreColumnsOfFiles) {
  const std::vector<double> prepared = losses(samples());
  std::string rows = "user,film,age,click,rating,weight\n";
  for (const Sample& s : samples())
    rows += str_cat(s.user, ',', s.film, ',', s.user % 2, ',', s.click, ',', s.rating, ',', s.weight, '\n');
  folder_.write("rows.csv", rows);
  for (const char* buffer : {"256", "0.01"}) {
    succeed(run_columns({"--set", str_cat("data.buffer_mib=", buffer), "--save", file("saved"), "--overwrite"}));
    const auto columns = json::parse(contents(file("report.json"))).at("losses").get<std::vector<double>>();
    EXPECT_EQ(columns, prepared) << buffer;
  }
  ASSERT_EQ(run_tessera({"quantize", "--load", file("saved"), "--save", file("model")}).status, 0);
  const std::string predicted = succeed(
      {"predict", "--model", file("model"), "--data", folder_.write("ask.csv", "film,user,age,click\n1,2,0,1\n")});
  EXPECT_THAT(predicted, HasSubstr("row,click,stars\n0,0.")) << "without all labels there are none";

  folder_.write("rows.csv", "user,film,age,click,rating,weight\n1,1,0,1,3,-2\n");
  expect_refused(run_columns({}),
                 HasSubstr("rows.csv, row 1, column \"weight\": the weight is -2, but must be 0 or more"));
  expect_refused(run_columns({"--set", "data.reader=synthetic"}),
                 HasSubstr("data.path has no effect: the reader \"synthetic\" generates its data"));
}

TEST_F(Tasks, MetricsThatDoNotFitALabelAreRefusedBeforeDataIsRead) {
  folder_.write("rows.csv", "user,film,age,click,rating,weight\nno number\n");
  for (const std::string key : {"metrics.names", "metrics.training"}) {
    expect_refused(run_columns({"--set", key + "=[\"click.ne\", \"stars.ne\"]"}),
                   AllOf(HasSubstr("the metric \"ne\" needs labels from 0 to 1, but the label \"rating\" of the "
                                   "head \"stars\" may be any number (real = true)"),
                         testing::Not(HasSubstr("rows.csv"))));
  }
  const Finished fits = run_columns({"--set", "metrics.names=[\"click.ne\", \"stars.rmse\"]"});
  EXPECT_THAT(fits.output, HasSubstr("rows.csv")) << "its first row is wrong, and read";
}

TEST_F(Tasks, AreRefusedWhereLabelsDoNotFit) {
  ASSERT_FALSE(losses(samples()).empty());
  expect_refused(
      run({"--set", "head.stars.label=raiting"}),
      AllOf(HasSubstr("the head \"stars\" wants the label \"raiting\""), HasSubstr("\"click\", \"rating\"")));
  expect_refused(run({"--set", "head.click.label=rating"}),
                 AllOf(HasSubstr("the head \"click\""), HasSubstr("from 0 to 1"), HasSubstr("\"rating\"")));
}

}  // namespace
}  // namespace tessera::test::tasks_test
