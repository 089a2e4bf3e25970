// Models of histories that [history] makes from rows of events: equal to histories that were prepared, equal on any
// number of ranks, and continued exactly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "graph_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::event_history_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kUsers = 40, kItems = 20;

const std::string kNextItem = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
metrics = {names = ["rank.hit_rate@1", "rank.mrr"]}
validation = {split = "data", fraction = 0.5, monitor = "rank.mrr"}
dense_optimizer = {name = "adam", learning_rate = 0.01}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.2, eps = 1e-8}, init_range = 0.5}
table = [
  {name = "user", rows = 40},
  {name = "item", rows = 21, pooling = "none", features = [
     "items", "next", "seen", "drawn?draw=all&first=1&during=training", "all?draw=all&first=1&during=evaluation"]}]
[[layer]]
name = "states"
type = "linear"
inputs = ["items"]
options = {width = 8}
)" + kItemHeads;

constexpr const char* kNextColumns = R"(
column = [
  {name = "label", column = "history.label", as = "label"},
  {name = "user"},
  {name = "items", column = "history.item"},
  {name = "next", column = "next.item"},
  {name = "seen", column = "seen.item"}]
)";

constexpr const char* kRanking = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8}}
table = [
  {name = "user", rows = 40},
  {name = "item", rows = 21, features = ["item", "items"], pooling = "none"}]
layer = [
  {name = "target", type = "sum_pooling", inputs = ["item"]},
  {name = "interest", type = "target_attention", inputs = ["target", "items"], options = {widths = [8]}},
  {name = "top", type = "mlp", inputs = ["pooled", "target", "interest"], options = {widths = [8, 1]}}]
head = [{name = "click", input = "top", loss = "binary_cross_entropy", label = "good"}]
column = [
  {name = "good", as = "label"},
  {name = "user"},
  {name = "item"},
  {name = "items", column = "history.item"}]
)";

class EventHistories : public testing::Test, protected JobFile {
 protected:
  // Users go round the items, each from another one on. The rows are in no order but that of a user's times.
  EventHistories() {
    std::string lines;
    std::vector<std::pair<int, std::string>> events;
    for (int user = 0; user < kUsers; ++user) {
      lines += std::to_string(user);
      for (int i = 0; i < events_of(user); ++i) {
        const int item = 1 + (3 * user + i) % kItems;
        lines += str_cat(' ', item);
        // A user's first event decides where it comes in prepared histories.
        events.emplace_back(i == 0 ? user : 1000 * i + user * 7 % 40,
                            str_cat(user, ',', item, ',', 1000 * i + user, ',', (user + item) % 3 == 0 ? 1 : 0, '\n'));
      }
      lines += '\n';
    }
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::string rows = "user,item,at,good\n";
    for (const auto& [place, row] : events) rows += row;
    write("histories.txt", lines);
    write("events.csv", rows);
  }
  static int events_of(int user) { return 4 + user % 7; }
  std::string next_item(const std::string& history) const {
    return str_cat(kNextColumns, kNextItem, "[data]\nbatch = 16\nepochs = 6\npath = \"", file("events.csv"), "\"\n",
                   history);
  }
  std::string ranking(const std::string& more) const {
    return str_cat(kRanking, "[data]\nbatch = 16\nepochs = 2\npath = \"", file("events.csv"), "\"\n", more);
  }
};

constexpr const char* kUsersHistory = R"(
[history]
user = "user"
time = "at"
columns = ["item"]
length = 5
samples = "users"
split = "leave_one_out"
)";
constexpr const char* kEventsHistory = R"(
[history]
user = "user"
time = "at"
columns = ["item"]
length = 5
)";

TEST_F(EventHistories, AreThoseThatWerePrepared) {
  write("job.toml", str_cat(kNextItem, "[data]\nreader = \"user-items?history=5\"\nbatch = 16\nepochs = 6\npath = \"",
                            file("histories.txt"), "\"\n"));
  const json prepared = trained(1);
  write("job.toml", next_item(kUsersHistory));
  for (const char* order : {"file", "sort"}) {
    const json made = trained(1, settings({str_cat("history.order=", order)}));
    EXPECT_EQ(losses_of(made), losses_of(prepared)) << order;
    EXPECT_EQ(made.at("test").at("rank.mrr"), prepared.at("test").at("rank.mrr")) << order;
  }
  const json two = trained(2);
  expect_same_losses(prepared, two, 1e-3);
}

// Each rank reads some of the blocks, and all see the whole histories.
TEST_F(EventHistories, AreTheSameOnAnyNumberOfRanks) {
  std::string rows = "user,item,at,good\n";
  for (int i = 0; i < 4000; ++i)
    rows += str_cat(i * 7 % kUsers, ',', 1 + i * 11 % kItems, ',', i / 2, ',', i * 13 % 3 == 0 ? 1 : 0, '\n');
  write("events.csv", rows);
  // The buffer holds a fraction of the samples, so that each rank reads its part of each window's blocks.
  write("job.toml", str_cat(ranking(kEventsHistory)));
  const Arguments streamed = settings({"data.buffer_mib=0.2", "data.test=last"});
  const json one = trained(1, streamed);
  expect_same_losses(one, trained(2, streamed));
  expect_same_losses(one, trained(3, streamed));
  const json kept = trained(1, settings({"data.shuffle=false", "data.test=last"}));
  EXPECT_EQ(losses_of(trained(1, streamed + settings({"data.shuffle=false"}))), losses_of(kept));
}

TEST_F(EventHistories, GoOnInTheMiddleOfAnEpoch) {
  const auto check = [&](const Arguments& how, int first) {
    const std::string saved = file("saved" + std::to_string(first));
    const std::string at_once = file("whole" + std::to_string(first));
    const json whole = trained(1, how + Arguments{"--save", at_once});
    trained(1, how + Arguments{"--save", saved, "--max-steps", std::to_string(first)});
    const json rest = trained(1, how + Arguments{"--save", saved, "--resume"});
    EXPECT_EQ(rest.at("first_step"), first);
    const std::vector<double> all = losses_of(whole);
    EXPECT_EQ(losses_of(rest), std::vector<double>(all.begin() + first, all.end()));
    for (const json* report : {&rest, &whole}) EXPECT_GT(report->at("test").at("samples"), 0);
    json mine = rest.at("test"), other = whole.at("test");
    mine.erase("seconds");
    other.erase("seconds");
    EXPECT_EQ(mine, other);
    for (const char* part : {"/model.safetensors", "/optimizer.safetensors"}) {
      const std::string wanted = contents(at_once + "/save-1" + part);
      EXPECT_FALSE(wanted.empty());
      EXPECT_EQ(contents(saved + "/save-2" + part), wanted) << part;
    }
  };
  write("job.toml", ranking(kEventsHistory));
  check(settings({"data.buffer_mib=0.02", "data.test=last"}), 7);
  write("job.toml", next_item(kUsersHistory));
  check({}, 4);
}

// The packed model gives users' next items for the events of a file, and refuses other jobs.
TEST_F(EventHistories, AnswerWhatComesNext) {
  write("job.toml", next_item(kUsersHistory));
  succeed(train(1, {"--save", file("saved"), "--set", "data.epochs=12"}));
  succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
  succeed({"predict", "--model", file("model"), "--config", path(), "--set", "history.samples=requests", "--top-k", "1",
           "--items", "item", "--query", "states", "--format", "jsonl", "--output", file("items.jsonl")});
  std::ifstream in(file("items.jsonl"));
  int users = 0, right = 0;
  for (std::string line; std::getline(in, line); ++users) {
    const int last = (3 * users + events_of(users) - 1) % kItems;
    right += json::parse(line).at("items").at(0) == 1 + (last + 1) % kItems ? 1 : 0;
  }
  EXPECT_EQ(users, kUsers);
  EXPECT_GT(right, 36);
}

// Events that arrive in files have the histories that they have in one file, and a job goes on exactly.
TEST_F(EventHistories, AreMadeOfEventsThatArrive) {
  const std::string rows = contents(file("events.csv")), header = rows.substr(0, rows.find('\n') + 1);
  std::filesystem::create_directory(file("in"));
  size_t at = header.size();
  for (int part = 0; at < rows.size(); ++part) {
    const size_t end = std::min(rows.size(), rows.find('\n', std::min(rows.size() - 1, at + 600)) + 1);
    write(str_cat("in/part-", 10 + part, ".csv"), header + rows.substr(at, end - at));
    at = end;
  }
  write("in/DONE", "");
  write("job.toml", ranking(kEventsHistory));
  const json whole =
      trained(1, settings({"data.shuffle=false", "data.epochs=1", "data.test_fraction=0", "data.batch=25"}));
  const Arguments arriving =
      settings({"data.reader=growing?end=DONE(csv)", str_cat("data.path=", file("in")), "data.batch=25"});
  const json one = trained(1, arriving + Arguments{"--save", file("whole")});
  EXPECT_EQ(losses_of(one), losses_of(whole));
  EXPECT_EQ(losses_of(one).size(), 11u) << "batches of one size, as files have them";
  expect_same_losses(one, trained(2, arriving));
  trained(1, arriving + Arguments{"--save", file("saved"), "--max-steps", "7"});
  const json rest = trained(1, arriving + Arguments{"--save", file("saved"), "--resume"});
  EXPECT_EQ(rest.at("first_step"), 7);
  const std::vector<double> all = losses_of(one);
  EXPECT_EQ(losses_of(rest), std::vector<double>(all.begin() + 7, all.end()));
  for (const char* part : {"/model.safetensors", "/optimizer.safetensors"}) {
    const std::string wanted = contents(file("whole/save-1") + part);
    EXPECT_FALSE(wanted.empty());
    EXPECT_EQ(contents(file("saved/save-2") + part), wanted) << part;
  }
  // A file of events is scored by the reader inside.
  succeed({"quantize", "--load", file("whole"), "--save", file("model"), "--weights", "fp32"});
  const auto scores = [&](const Arguments& more) {
    succeed(
        Arguments{"predict", "--model", file("model"), "--output", file("scores.csv"), "--data", file("events.csv")} +
        more);
    return contents(file("scores.csv"));
  };
  EXPECT_EQ(scores({}), scores({"--reader", R"(histories?user="user"&time="at"&columns="item"&length=5(csv))"}));

  const auto refused = [&](const Arguments& more, int status = 2) {
    const Finished done = train(0, arriving + more);
    EXPECT_EQ(done.status, status) << done.output;
    return done.output;
  };
  const Arguments again = {"--save", file("again"), "--max-steps", "3"};
  trained(1, arriving + again);
  const Arguments resume = {"--save", file("again"), "--resume"};
  const std::string first = contents(file("in/part-10.csv"));
  write("in/part-10.csv", header + first.substr(first.find('\n', header.size()) + 1) + "0,3,99999,1\n");
  EXPECT_THAT(refused(resume, 1), HasSubstr("does not begin with the 75 events that were read before the position"));
  for (const auto& entry : std::filesystem::directory_iterator(file("in"))) {
    if (entry.path().filename() > "part-10.csv") std::filesystem::remove(entry.path());
  }
  EXPECT_THAT(refused(resume, 1), HasSubstr(" of the 75 events before the position, and histories are made of all"));
  write("in/part-10.csv", header + "1,3,5,1\n1,3,4,1\n");
  EXPECT_THAT(refused({}),
              HasSubstr("part-10.csv, row 2, column \"at\": the event is earlier than one of the same user"));
  write("in/part-10.csv", header + ",3,5,1\n");
  EXPECT_THAT(refused({}), HasSubstr("part-10.csv, row 1, column \"user\": the event has no user"));
  EXPECT_THAT(refused(settings({"history.order=sort"})), HasSubstr("history.order = \"sort\" does not go with rows"));
  EXPECT_THAT(refused(settings({"history.split=leave_one_out"})), HasSubstr("history.split does not go with rows"));
  EXPECT_THAT(refused(settings({"history.samples=users"})), HasSubstr("history.samples does not go with rows"));
}

// All events of a file are scored in its order, whatever parts the model's job had.
TEST_F(EventHistories, AreScoredInTheOrderOfTheFile) {
  write("job.toml", ranking(str_cat(kEventsHistory, "split = \"leave_one_out\"\n")));
  succeed(train(1, {"--save", file("saved")}));
  succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
  std::ifstream in(file("events.csv"));
  std::string wanted, line;
  for (std::getline(in, line); std::getline(in, line);) wanted += line.back();
  for (const Arguments& how : {Arguments{"--data", file("events.csv")}, Arguments{"--config", path()}}) {
    succeed(Arguments{"predict", "--model", file("model"), "--format", "jsonl", "--output", file("scores.jsonl")} +
            how);
    std::ifstream scores(file("scores.jsonl"));
    std::string labels;
    while (std::getline(scores, line)) labels += std::to_string(json::parse(line).at("label").get<int>());
    EXPECT_EQ(labels, wanted) << how[0];
  }
  for (const char* other : {"length=4", "keep=oldest", "repeats=false", "user=item", "time=item"}) {
    const std::string text = other, key = str_cat("history.", text.substr(0, text.find('=')));
    const Finished run =
        run_tessera({"predict", "--model", file("model"), "--config", path(), "--set", str_cat("history.", other)}, 60);
    EXPECT_THAT(test::refused(run),
                AllOf(HasSubstr(str_cat(key, " is ")), HasSubstr("in the job that trained the model")));
  }
  succeed({"predict", "--model", file("model"), "--config", path(), "--part", "test", "--format", "jsonl", "--output",
           file("test.jsonl")});
  const std::string test = contents(file("test.jsonl"));
  EXPECT_EQ(std::count(test.begin(), test.end(), '\n'), kUsers);
}

// The rows that a reader keeps for validation are some of all rows.
TEST_F(EventHistories, AreScoredWithThoseForValidation) {
  write("job.toml", next_item(kUsersHistory));
  succeed(train(1, {"--save", file("saved")}));
  succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
  succeed({"predict", "--model", file("model"), "--data", file("histories.txt"), "--reader", "user-items?history=5",
           "--top-k", "1", "--items", "item", "--query", "states", "--format", "jsonl", "--output",
           file("items.jsonl")});
  const std::string items = contents(file("items.jsonl"));
  EXPECT_EQ(std::count(items.begin(), items.end(), '\n'), 3 * kUsers);
}

TEST_F(EventHistories, WrongJobsAreNamed) {
  const auto refused = [&](const Arguments& how) { return test::refused(train(0, how)); };
  write("job.toml", ranking(kEventsHistory));
  EXPECT_THAT(refused(settings({"history.length=0"})), HasSubstr("history.length"));
  EXPECT_THAT(refused(settings({"history.time=\"\""})), HasSubstr("history.time is empty"));
  EXPECT_THAT(refused(settings({"history.time=when"})), HasSubstr("history.time: the files have no column \"when\""));
  EXPECT_THAT(refused(settings({"history.values=[\"a\"]"})), HasSubstr("history.values has no effect: set history.by"));
  EXPECT_THAT(refused(settings({"history.split=time", "history.test_from=\"999999\""})),
              HasSubstr("history.split = \"time\" leaves no sample of "));
  std::string rows = contents(file("events.csv"));
  write("events.csv", rows + "0,3,0,1\n");
  EXPECT_THAT(refused({}), HasSubstr("the event is earlier than one of the same user, \"0\", in a row before it: sort "
                                     "the files by time, or set history.order = \"sort\""));
  write("events.csv", rows + ",3,99999,1\n");
  EXPECT_THAT(refused({}), HasSubstr("column \"user\": the event has no user: leave out such rows"));
}

}  // namespace
}  // namespace tessera::test::event_history_test
