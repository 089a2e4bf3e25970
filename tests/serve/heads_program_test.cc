// A model of several heads in programs: `tessera predict` and `tessera serve` give the values that each head has in
// this process, in one process or over ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "heads_model.h"

namespace tessera::serve {
namespace {

using test::operator+;
using nlohmann::json;
using test::Finished;
using test::OwnInput;
using test::Program;
using test::run_tessera;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class Heads : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = new HeadsModel; }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  static Finished predict(std::vector<std::string> more) {
    more.insert(more.begin(), {"predict", "--model", model_->path()});
    return run_tessera(more);
  }
  // Lines of numbers after the first line.
  static std::vector<std::vector<double>> rows_of(const std::string& text) {
    std::istringstream in(text);
    std::string line;
    std::getline(in, line);
    std::vector<std::vector<double>> out;
    while (std::getline(in, line)) {
      out.emplace_back();
      std::istringstream fields(line);
      for (std::string field; std::getline(fields, field, ',');) out.back().push_back(std::stod(field));
    }
    return out;
  }
  // Asks a server started by `command`, possibly over ranks, and checks its answers.
  static void expect_served(std::vector<std::string> command) {
    const bool over_ranks = !command.empty();
    command.insert(command.end(), {test::tessera_path(), "serve", "--model", model_->path(), "--port", "0"});
    if (over_ranks) command.insert(command.end(), {"--backend", "tcp"});
    Program program(command);
    const int port = port_of(program);
    ASSERT_NE(port, 0);
    Client client(port);
    const json metadata = json::parse(client.ask(Client::get("/v2/models/two")).body);
    EXPECT_EQ(metadata["outputs"], json::parse(R"([{"name":"click","datatype":"FP32","shape":[-1]},
                                                   {"name":"stars","datatype":"FP32","shape":[-1]}])"));
    OwnInput input(model_->description(), 5, 3);
    const std::vector<std::vector<float>> values = model_->values(input);
    const auto expect_outputs = [&](const std::string& outputs, const std::vector<std::string>& names,
                                    const std::vector<size_t>& heads) {
      json body = json::parse(json_request(model_->description(), input));
      if (!outputs.empty()) body["outputs"] = json::parse(outputs);
      const Reply reply = client.ask(Client::post("/v2/models/two/infer", body.dump()));
      ASSERT_EQ(reply.status, 200) << reply.body;
      const json told = json::parse(reply.body)["outputs"];
      ASSERT_EQ(told.size(), names.size());
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(told[i]["name"], names[i]);
        const auto got = told[i]["data"].get<std::vector<float>>();
        ASSERT_EQ(got.size(), 5u);
        for (size_t s = 0; s < 5; ++s) EXPECT_NEAR(got[s], values[heads[i]][s], 1e-6f) << names[i] << ' ' << s;
      }
    };
    expect_outputs("", {"click", "stars"}, {0, 1});
    expect_outputs(R"([{"name": "stars"}])", {"stars"}, {1});
    expect_outputs(R"([{"name": "stars"}, {"name": "score"}])", {"stars", "score"}, {1, 0});
    json wrong = json::parse(json_request(model_->description(), input));
    wrong["outputs"] = json::parse(R"([{"name": "star"}])");
    const Reply reply = client.ask(Client::post("/v2/models/two/infer", wrong.dump()));
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, HasSubstr(R"(output \"star\" is unknown; there are \"click\" and \"stars\")"));
  }

  static HeadsModel* model_;
};
HeadsModel* Heads::model_ = nullptr;

TEST_F(Heads, AreJudgedAndWrittenByTheirNames) {
  const json test = model_->report()["test"];
  EXPECT_THAT(model_->quantized(), AllOf(HasSubstr("test: click.auc "), HasSubstr("; stars.rmse ")));
  const std::string scores = model_->file("scores.csv");
  const std::string done = succeed(predict({"--config", model_->config(), "--part", "test", "--output", scores}));
  const std::string text = test::contents(scores);
  EXPECT_THAT(text, StartsWith("row,click_label,click,stars_label,stars\n0,"));
  const std::vector<std::vector<double>> rows = rows_of(text);
  ASSERT_EQ(rows.size(), 60u);
  double logloss = 0, squares = 0;
  for (const std::vector<double>& row : rows) {
    ASSERT_EQ(row.size(), 5u);
    logloss -= std::log(row[1] > 0 ? row[2] : 1 - row[2]) / 60;
    squares += (row[4] - row[3]) * (row[4] - row[3]) / 60;
  }
  EXPECT_NEAR(logloss, test["click.logloss"].get<double>(), 1e-4);
  EXPECT_NEAR(std::sqrt(squares), test["stars.rmse"].get<double>(), 1e-4);
  const size_t auc = done.find("click.auc "), rmse = done.find("stars.rmse ");
  ASSERT_NE(auc, std::string::npos) << done;
  ASSERT_NE(rmse, std::string::npos) << done;
  EXPECT_NEAR(std::stod(done.substr(auc + 10)), test["click.auc"].get<double>(), 1e-4);
  EXPECT_NEAR(std::stod(done.substr(rmse + 11)), test["stars.rmse"].get<double>(), 1e-4);
}

TEST_F(Heads, AreChosenByName) {
  const auto first_line = [&](const std::vector<std::string>& more) {
    const std::string done = succeed(predict(test::Arguments{"--config", model_->config(), "--part", "test"} + more));
    return done.substr(0, done.find('\n'));
  };
  EXPECT_EQ(first_line({"--head", "stars"}), "row,label,score") << "one head is as of a model that has no other";
  EXPECT_EQ(first_line({"--head", "stars", "--head", "click"}), "row,stars_label,stars,click_label,click");
  const json row = json::parse(first_line({"--format", "jsonl"}));
  for (const char* key : {"row", "click_label", "click", "stars_label", "stars"}) EXPECT_TRUE(row.contains(key)) << row;
  expect_refused(predict({"--data", model_->file("not read"), "--head", "star"}),
                 HasSubstr("--head: the model has no head \"star\"; the nearest is \"stars\""));
  expect_refused(predict({"--data", "x", "--vectors", "shared", "--output", "y", "--head", "click"}),
                 HasSubstr("--head selects scores"));
}

// Lines of the prepared format have the labels of all heads, whichever heads answer; "-" is standard output.
TEST_F(Heads, LinesHaveALabelOfEach) {
  test::write_text(model_->file("lines.tsv"), "1,3.5\t0,1,0\t3,4\t17\n0,-2\t0,0,1\t29\t\n");
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{{}, {"--output", "-"}}) {
    EXPECT_THAT(succeed(predict(test::Arguments{"--data", model_->file("lines.tsv")} + more)),
                AllOf(StartsWith("row,click_label,click,stars_label,stars\n0,1,0."),
                      AllOf(HasSubstr(",3.5,"), HasSubstr("\n1,0,0."), HasSubstr(",-2,"))));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
  const Finished stars = predict({"--data", model_->file("lines.tsv"), "--head", "stars"});
  EXPECT_THAT(stars.output, StartsWith("row,label,score\n0,3.5,"));
  test::write_text(model_->file("short.tsv"), "1\t0,1,0\t3,4\t17\n");
  EXPECT_THAT(predict({"--data", model_->file("short.tsv")}).output,
              HasSubstr("the labels are \"1\", but must be 2 numbers with commas between"));
}

TEST_F(Heads, AreServed) { expect_served({}); }
TEST_F(Heads, AreServedOverRanks) { expect_served({test::tessera_path(), "launch", "-n", "2", "--"}); }

}  // namespace
}  // namespace tessera::serve
