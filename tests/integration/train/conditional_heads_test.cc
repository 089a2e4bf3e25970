// Heads that count only samples where another label is 1, and products of heads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::conditional_heads_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
model = {embedding_dim = 8}
data = {reader = "csv", path = "DIR/rows.csv", batch = 64, epochs = 4, test = "last", test_fraction = 0.2}
dense_optimizer = {name = "adam", learning_rate = 0.01}
report = {json = "DIR/report.json"}
column = [
  {name = "clicked", as = "label"},
  {name = "bought", as = "label"},
  {name = "user", ids = "vocabulary"}]
layer = [{name = "buy", type = "mlp", inputs = ["pooled"], options = {widths = [16, 1]}}]
[[head]]
name = "buy"
input = "buy"
label = "bought"
)";

class ConditionalHeads : public testing::Test, protected JobFile {
 protected:
  // Even users buy what was clicked, and odd users what was not, which nothing may learn.
  void SetUp() override {
    std::string rows = "clicked,bought,user\n";
    for (int i = 0; i < 2000; ++i) {
      const int user = i * 7 % 40, clicked = i / 3 % 2;
      rows += str_cat(clicked, ",", (user % 2 == 0) == (clicked == 1) ? 1 : 0, ",u", user, "\n");
    }
    write("rows.csv", rows);
  }
  std::string job(const std::string& where) const { return write_job(str_cat(kJob, where, '\n')); }
};

TEST_F(ConditionalHeads, OnlySamplesThatCountAreLearntAndJudged) {
  succeed({"train", "--config", job("where = \"clicked\""), "--save", file("saved")});
  const double alone = report().at("test").at("auc").get<double>();
  EXPECT_GT(alone, 0.999);
  const std::string said = succeed({"predict", "--model", file("saved"), "--config", file("job.toml"), "--part", "test",
                                    "--output", file("scores.csv")});
  EXPECT_THAT(said, HasSubstr("AUC 1.0"));
  succeed({"train", "--config", job("")});
  EXPECT_LT(report().at("test").at("auc").get<double>(), 0.7) << "both kinds of samples contradict each other";
  // The same on two ranks, to rounding.
  succeed({"train", "--config", job("where = \"clicked\""), "--nproc", "2"});
  EXPECT_NEAR(report().at("test").at("auc").get<double>(), alone, 1e-4);
}

// The first loss is linear in the factor of positives.
TEST_F(ConditionalHeads, PositivesMayWeighMore) {
  const auto first_loss = [&](const std::string& weight) {
    succeed({"train", "--config", job("positive_weight = " + weight), "--set", "data.epochs=1"});
    return report().at("losses").at(0).get<double>();
  };
  const double one = first_loss("1"), two = first_loss("2"), three = first_loss("3");
  EXPECT_GT(two, one * 1.2);
  EXPECT_NEAR(three - two, two - one, 1e-5);
  expect_refused({"train", "--config", job("positive_weight = 0")}, HasSubstr("positive_weight"));
}

// A model that knows the labels pays for each of them.
TEST_F(ConditionalHeads, LabelsMayBeSmoothed) {
  const auto last_loss = [&](const std::string& smoothing) {
    succeed(
        {"train", "--config", job("where = \"clicked\"\nlabel_smoothing = " + smoothing), "--set", "data.epochs=8"});
    return report().at("losses").back().get<double>();
  };
  EXPECT_GT(last_loss("0.2"), last_loss("0.0") + 0.05);
  EXPECT_GT(report().at("test").at("auc").get<double>(), 0.999);
  expect_refused({"train", "--config", job("label_smoothing = 0.1\nloss = \"mse\"")},
                 HasSubstr("has label_smoothing, which is of the loss binary_cross_entropy, not of mse"));
  expect_refused({"train", "--config", job("label_smoothing = 1.5")}, HasSubstr("label_smoothing"));
}

TEST_F(ConditionalHeads, WrongLabels) {
  expect_refused({"train", "--config", job("where = \"clickd\"")},
                 HasSubstr("the head \"buy\" counts samples where \"clickd\" is 1, but the data's labels are called "
                           "\"clicked\", \"bought\""));
  expect_refused({"train", "--config", job("where = \"bought\"")}, HasSubstr("it would learn nothing but ones"));
}

TEST_F(ConditionalHeads, ThePresetMultipliesProbabilities) {
  const std::string preset = write("esmm.toml", succeed({"model", "new", "esmm"}));
  succeed({"train", "--config", preset, "--save", file("esmm"), "--set", "data.samples=512", "--set",
           "data.test_samples=64", "--set", str_cat("report.json=", file("report.json"))});
  EXPECT_TRUE(report().at("test").contains("click_and_buy.auc"));
}

}  // namespace
}  // namespace tessera::test::conditional_heads_test
