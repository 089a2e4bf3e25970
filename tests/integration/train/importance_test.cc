// `tessera model importance` and `tessera predict --importance`: columns by what the answers lose without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::importance_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ModelImportance : public testing::Test {
 protected:
  // Users decide most, the size some, and the noise nothing.
  void SetUp() override {
    uint32_t random = 7;
    const auto below = [&](uint32_t n) { return ((random = random * 1664525u + 1013904223u) >> 16) % n; };
    std::string rows = "click,noise,user,size\n";
    for (int i = 0; i < 3000; ++i) {
      const uint32_t user = below(20), size = below(100);
      const uint32_t odds = (user < 10 ? 70 : 10) + (size < 50 ? 20 : 0);
      rows += str_cat(below(100) < odds ? 1 : 0, ",n", below(20), ",u", user, ",", size, ".5\n");
    }
    data_ = folder_.write("rows.csv", rows);
    succeed({"data", "describe", data_, "--label", "click", "--output", file("job.toml")});
    succeed({"train", "--config", file("job.toml"), "--save", file("saved"), "--set", "job.device=cpu", "--set",
             "data.batch=64", "--set", "data.epochs=4"});
    succeed({"quantize", "--load", file("saved"), "--save", file("model")});
  }
  std::string file(const std::string& name) const { return folder_.file(name); }

  TestDirectory folder_;
  std::string data_;
};

TEST_F(ModelImportance, OrdersColumnsByWhatTheyAreWorth) {
  const std::string said = succeed({"model", "importance", file("saved"), "--data", data_});
  EXPECT_THAT(said, AllOf(HasSubstr(" of 3000 rows of "), HasSubstr("falls by, if a column is shuffled")));
  EXPECT_LT(said.find("  user"), said.find("  size")) << said;
  EXPECT_LT(said.find("  size"), said.find("  noise")) << said;

  std::vector<nlohmann::json> columns;
  const std::string found = succeed({"predict", "--model", file("model"), "--data", data_, "--importance", "3",
                                     "--metric", "logloss", "--format", "jsonl"});
  for (const std::string& line : lines_of(found)) columns.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns[0].at("column"), "user");
  EXPECT_EQ(columns[0].at("metric"), "logloss");
  EXPECT_GT(columns[0].at("importance"), 0.05);
  EXPECT_EQ(columns[2].at("column"), "noise");
  EXPECT_LT(std::abs(columns[2].at("importance").get<double>()), 0.01);
}

TEST_F(ModelImportance, ExplainsRows) {
  std::istringstream lines(
      succeed({"predict", "--model", file("saved"), "--data", data_, "--explain", "40", "--format", "jsonl"}));
  std::istringstream scores(succeed({"predict", "--model", file("saved"), "--data", data_}));
  std::string line, score;
  std::getline(scores, score);  // the names
  double users = 0, noise = 0;
  for (int row = 0; row < 40; ++row) {
    ASSERT_TRUE(std::getline(lines, line));
    const auto told = nlohmann::json::parse(line);
    EXPECT_EQ(told.at("row"), row);
    std::getline(scores, score);
    EXPECT_NEAR(told.at("score").get<double>(), std::stod(score.substr(score.rfind(',') + 1)), 1e-6);
    users += std::abs(told.at("moved_by").at("user").get<double>());
    noise += std::abs(told.at("moved_by").at("noise").get<double>());
  }
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_GT(users, 3 * noise);
  EXPECT_THAT(succeed({"predict", "--model", file("saved"), "--data", data_, "--explain", "1"}),
              AllOf(HasSubstr("row 0: score 0."), HasSubstr("  user ")));
}

TEST_F(ModelImportance, CheckpointsAnswerAsFloatModelsDo) {
  succeed({"quantize", "--load", file("saved"), "--save", file("float"), "--weights", "fp32"});
  EXPECT_EQ(succeed({"predict", "--model", file("saved"), "--data", data_, "--output", file("a")}).size(),
            succeed({"predict", "--model", file("float"), "--data", data_, "--output", file("b")}).size());
  EXPECT_EQ(contents(file("a")), contents(file("b")));
}

TEST_F(ModelImportance, WrongUses) {
  const auto refused = [&](const Arguments& more, const char* sentence) {
    expect_refused(Arguments{"predict", "--model", file("model"), "--data", data_} + more, HasSubstr(sentence));
  };
  refused({"--importance", "2", "--metric", "acu"}, "there is no metric \"acu\"; the nearest is \"auc\"");
  refused({"--importance", "2", "--metric", "calibration"}, "take logloss");
  refused({"--importance", "-1"}, "--importance takes 1 to 1000 shuffles");
  refused({"--explain", "-1"}, "--explain takes 1 to 10000 rows");
  refused({"--explain", "1", "--importance", "1"}, "--explain cannot be combined with --importance");
  refused({"--metric", "auc"}, "--metric has no effect without --importance");
  const std::string bare = folder_.write("bare.csv", "noise,user,size\nn1,u1,3.5\nn2,u2,4.5\n");
  expect_refused({"model", "importance", file("model"), "--data", bare},
                 HasSubstr("importance needs rows with labels"));
  expect_refused({"model", "importance", file("model")}, HasSubstr("data is needed: tessera model importance DIR"));
  expect_refused({"model", "importance"}, HasSubstr("tessera model importance DIR --data FILE"));
}

}  // namespace
}  // namespace tessera::test::importance_test
