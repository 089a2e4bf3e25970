// A request that brings the events of a user's history has the score that the event has in a file of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "job_file.h"
#include "served_model.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::Program;
using testing::HasSubstr;

constexpr size_t kLength = 3;

constexpr const char* kEventsJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8}}
history = {user = "user", time = "at", columns = ["item", "at"], length = 3}
[[table]]
name = "user"
[[table]]
name = "item"
features = ["item", "items"]
pooling = "none"
[[table]]
name = "hours"
pooling = "none"
[[layer]]
name = "target"
type = "sum_pooling"
inputs = ["item"]
[[layer]]
name = "rows"
type = "sum"
inputs = ["items", "hours"]
[[layer]]
name = "interest"
type = "target_attention"
inputs = ["target", "rows"]
options = {widths = [8]}
[[layer]]
name = "top"
type = "mlp"
inputs = ["pooled", "target", "interest"]
options = {widths = [8, 1]}
[[head]]
name = "click"
input = "top"
loss = "binary_cross_entropy"
label = "good"
[[column]]
name = "good"
as = "label"
[[column]]
name = "user"
ids = "vocabulary"
[[column]]
name = "item"
ids = "vocabulary"
[[column]]
name = "items"
column = "history.item"
ids = "vocabulary"
[[column]]
name = "hours"
column = "history.at"
take = "hour"
rows = 24
)";

TEST(ServedHistories, HaveTheScoresOfTheirEvents) {
  const test::JobFile job;
  struct Event {
    std::string user, item, at;
  };
  std::vector<Event> events;
  std::string rows = "user,item,at,good\n";
  for (int i = 0; i < 300; ++i) {
    events.push_back({str_cat("u", i * 7 % 13), str_cat("film ", i * 11 % 29),
                      str_cat("2024-01-", 10 + i / 24, ' ', i % 24 < 10 ? "0" : "", i % 24, ":30")});
    rows += str_cat(events.back().user, ',', events.back().item, ',', events.back().at, ',', i % 3 == 0 ? 1 : 0, '\n');
  }
  job.write("events.csv", rows);
  job.write("job.toml",
            str_cat(kEventsJob, "[data]\npath = \"", job.file("events.csv"), "\"\nbatch = 16\nepochs = 2\n"));
  succeed(job.train(1, {"--save", job.file("saved")}));
  succeed(
      test::run_tessera({"quantize", "--load", job.file("saved"), "--save", job.file("model"), "--weights", "fp32"}));
  succeed(test::run_tessera({"predict", "--model", job.file("model"), "--data", job.file("events.csv"), "--format",
                             "jsonl", "--output", job.file("scores.jsonl")}));
  Program program({test::tessera_path(), "serve", "--model", job.file("model"), "--port", "0"});
  const int port = port_of(program);
  ASSERT_NE(port, 0);
  Client client(port);
  std::ifstream scores(job.file("scores.jsonl"));
  double largest = 0, least = 1;
  for (size_t i = 0; i < events.size(); ++i) {
    json items = json::array(), times = json::array();
    for (size_t before = i; before > 0 && items.size() < kLength; --before) {
      if (events[before - 1].user != events[i].user) continue;
      items.insert(items.begin(), events[before - 1].item);
      times.insert(times.begin(), events[before - 1].at);
    }
    const json row = {
        {"user", events[i].user}, {"item", events[i].item}, {"history.item", items}, {"history.at", times}};
    const Reply reply = client.ask(Client::post("/v1/score", json{{"rows", {row}}}.dump()));
    ASSERT_EQ(reply.status, 200) << reply.body;
    std::string line;
    ASSERT_TRUE(std::getline(scores, line));
    const double served = json::parse(reply.body).at("scores").at(0).begin()->get<double>();
    ASSERT_NEAR(served, json::parse(line).at("score").get<double>(), 1e-6) << row;
    largest = std::max(largest, served);
    least = std::min(least, served);
  }
  EXPECT_GT(largest - least, 0.01) << "the scores do not differ";
  const Reply reply =
      client.ask(Client::post("/v1/score", R"({"rows": [{"user": "u1", "item": "film 1", "items": ["film 2"]}]})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr(R"(the model has no column \"items\"; the nearest is)"));
}

}  // namespace
}  // namespace tessera::serve
