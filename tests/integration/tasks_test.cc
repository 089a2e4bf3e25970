// Several labels, real values and weights of samples, from the data to the losses of heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "graph_job.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kJob = R"(
[job]
seed = 3
device = "cpu"
threads = 1
[comm]
backend = "tcp"
[model]
embedding_dim = 4
[[layer]]
name = "shared"
type = "mlp"
inputs = ["dense", "pooled"]
options = { widths = [8], final_activation = "relu" }
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

struct Sample {
  float click, rating, weight;
  int user, film;
};

class Tasks : public testing::Test {
 protected:
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (int i = 0; i < 128; ++i) {
      const int user = i * 7 % 13, film = i * 5 % 11;
      out.push_back({(user + film) % 3 == 0 ? 1.0f : 0.25f, static_cast<float>((user * film) % 5) + 1,
                     i % 4 == 3 ? 0.0f : 1.0f + static_cast<float>(i % 2), user, film});
    }
    return out;
  }
  std::vector<double> losses(const std::vector<Sample>& samples, int ranks = 1) {
    std::string lines;
    for (const Sample& s : samples)
      lines += cat(s.click, ',', s.rating, ',', s.weight, '\t', s.user % 2, '\t', s.user, '\t', s.film, '\n');
    folder_.write("meta.json", R"({"labels": ["click", "rating"], "sample_weights": true, "dense": ["age"],
      "columns": [{"name": "user", "rows": 13}, {"name": "film", "rows": 11}]})");
    folder_.write("train.tsv", lines);
    folder_.write("test.tsv", "1,3,1\t0\t1\t1\n0,3,1\t0\t2\t1\n");
    const std::string report = folder_.file("report.json");
    const Finished done = run({"--nproc", cat(ranks), "--set", "report.json=" + report});
    EXPECT_EQ(done.status, 0) << done.output;
    return done.status ? std::vector<double>() : json::parse(contents(report)).at("losses").get<std::vector<double>>();
  }
  Finished run(const std::vector<std::string>& more) {
    std::vector<std::string> args = {"train", "--config", folder_.write("job.toml", kJob), "--set",
                                     "data.path=" + folder_.file("")};
    args.insert(args.end(), more.begin(), more.end());
    return run_tessera(args, 60);
  }
  std::vector<double> changed(const std::function<void(Sample&)>& change) {
    std::vector<Sample> all = samples();
    for (Sample& s : all) change(s);
    return losses(all);
  }
  TestFolder folder_;
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

// The first loss by hand: values are 0 at the start but for small rows, so both losses are near those of 0.
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

TEST_F(Tasks, AreRefusedWhereLabelsDoNotFit) {
  ASSERT_FALSE(losses(samples()).empty());
  const Finished unknown = run({"--set", "head.stars.label=raiting"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.output,
              AllOf(HasSubstr("the head \"stars\" wants the label \"raiting\""), HasSubstr("\"click\", \"rating\"")));
  const Finished stars = run({"--set", "head.click.label=rating"});
  EXPECT_EQ(stars.status, 2);
  EXPECT_THAT(stars.output, AllOf(HasSubstr("the head \"click\""), HasSubstr("from 0 to 1"), HasSubstr("\"rating\"")));
}

}  // namespace
}  // namespace tessera::test
