// A request that brings a user's events, or names a user whose events the server keeps, has the score that the event
// has in a file of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "job_file.h"
#include "served_model.h"

namespace tessera::serve {
namespace {

using nlohmann::json;
using test::Program;
using test::succeed;
using test::operator+;
using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kLength = 3;

constexpr const char* kEventsJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8}}
history = {user = "user", time = "at", columns = ["item", "at"], length = 3}
table = [
  {name = "user"},
  {name = "item", features = ["item", "items"], pooling = "none"},
  {name = "hours", pooling = "none"}]
layer = [
  {name = "target", type = "sum_pooling", inputs = ["item"]},
  {name = "rows", type = "sum", inputs = ["items", "hours"]},
  {name = "interest", type = "target_attention", inputs = ["target", "rows"], options = {widths = [8]}},
  {name = "top", type = "mlp", inputs = ["pooled", "target", "interest"], options = {widths = [8, 1]}}]
head = [{name = "click", input = "top", loss = "binary_cross_entropy", label = "good"}]
column = [
  {name = "good", as = "label"},
  {name = "user", ids = "vocabulary"},
  {name = "item", ids = "vocabulary"},
  {name = "items", column = "history.item", ids = "vocabulary"},
  {name = "hours", column = "history.at", take = "hour", rows = 24}]
)";

struct Event {
  std::string user, item, at;
  json as_json() const { return {{"user", user}, {"item", item}, {"at", at}, {"other", {{"more", 1}}}}; }
};

// A model that was trained on events with their histories, and the score that each event has in the file.
class ServedHistories : public testing::Test, protected test::JobFile {
 protected:
  ServedHistories() {
    for (int i = 0; i < 300; ++i)
      events_.push_back({str_cat("u", i * 7 % 13), str_cat("film ", i * 11 % 29),
                         str_cat("2024-01-", 10 + i / 24, ' ', i % 24 < 10 ? "0" : "", i % 24, ":30")});
    write("events.csv", csv(0, events_.size()));
    write("job.toml", str_cat(kEventsJob, "[data]\npath = \"", file("events.csv"), "\"\nbatch = 16\nepochs = 2\n"));
    succeed(train(1, {"--save", file("saved")}));
    succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
    succeed({"predict", "--model", file("model"), "--data", file("events.csv"), "--format", "jsonl", "--output",
             file("scores.jsonl")});
    std::ifstream scores(file("scores.jsonl"));
    for (std::string line; std::getline(scores, line);) scores_.push_back(json::parse(line).at("score").get<double>());
    EXPECT_EQ(scores_.size(), events_.size());
  }
  // The rows [begin, end) as a file.
  std::string csv(size_t begin, size_t end) const {
    std::string rows = "user,item,at,good\n";
    for (size_t i = begin; i < end; ++i)
      rows += str_cat(events_[i].user, ',', events_[i].item, ',', events_[i].at, ',', i % 3 == 0 ? 1 : 0, '\n');
    return rows;
  }
  // The user's events before event `i`, the last `most` of them.
  std::vector<Event> before(size_t i, size_t most) const {
    std::vector<Event> out;
    const std::string user = events_[i].user;
    for (; i > 0 && out.size() < most; --i) {
      if (events_[i - 1].user == user) out.insert(out.begin(), events_[i - 1]);
    }
    return out;
  }
  static json asked(const Event& event) { return {{"user", event.user}, {"item", event.item}}; }
  std::unique_ptr<Client> serve(const test::Arguments& more = {}) {
    program_ = std::make_unique<Program>(
        test::Arguments{test::tessera_path(), "serve", "--model", file("model"), "--port", "0"} + more);
    return std::make_unique<Client>(port_of(*program_));
  }
  static double score(Client& client, const json& row) {
    const Reply reply = client.ask(Client::post("/v1/score", json{{"rows", {row}}}.dump()));
    EXPECT_EQ(reply.status, 200) << row << reply.body;
    return reply.status == 200 ? json::parse(reply.body).at("scores").at(0).begin()->get<double>() : -1;
  }
  static std::string refused(Client& client, const std::string& path, const json& body, int status = 400) {
    const Reply reply = client.ask(Client::post(path, body.dump()));
    EXPECT_EQ(reply.status, status) << reply.body;
    return reply.body;
  }
  static std::string metrics(Client& client) { return client.ask(Client::get("/metrics")).body; }
  std::string failed(const test::Arguments& more) const {
    const test::Finished done =
        test::run_tessera(test::Arguments{"serve", "--model", file("model"), "--port", "0"} + more, 60);
    EXPECT_EQ(done.status, 2) << done.output;
    return done.output;
  }

  std::vector<Event> events_;
  std::vector<double> scores_;
  std::unique_ptr<Program> program_;
};

TEST_F(ServedHistories, HaveTheScoresOfTheirEvents) {
  const auto client = serve();
  for (size_t i = 0; i < events_.size(); ++i) {
    json lists = asked(events_[i]), history = json::array();
    lists["history.item"] = lists["history.at"] = json::array();
    for (const Event& event : before(i, kLength)) {
      lists["history.item"].push_back(event.item);
      lists["history.at"].push_back(event.at);
    }
    ASSERT_NEAR(score(*client, lists), scores_[i], 1e-6) << lists;
    // The same events as such, of which the model takes the last ones.
    for (const Event& event : before(i, kLength + 3)) history.push_back(event.as_json());
    json row = asked(events_[i]);
    row["history"] = history;
    ASSERT_EQ(score(*client, row), score(*client, lists)) << row;
  }
  // The model takes the last values of longer lists, as of events, also in tensors.
  for (const size_t i : {events_.size() - 1, events_.size() - 5}) {
    json lists = asked(events_[i]);
    json values = json::array(), hours = json::array();
    for (const Event& event : before(i, kLength + 4)) {
      values.push_back(event.item);
      hours.push_back(event.at);
    }
    ASSERT_EQ(values.size(), kLength + 4);
    lists["history.item"] = values;
    lists["history.at"] = hours;
    ASSERT_NEAR(score(*client, lists), scores_[i], 1e-6) << lists;
    json inputs = json::array();
    const auto add = [&](const char* name, const json& data) {
      inputs.push_back(
          {{"name", str_cat(name, ".values")}, {"datatype", "BYTES"}, {"shape", {data.size()}}, {"data", data}});
      inputs.push_back(
          {{"name", str_cat(name, ".lengths")}, {"datatype", "INT32"}, {"shape", {1}}, {"data", {data.size()}}});
    };
    add("user", json::array({events_[i].user}));
    add("item", json::array({events_[i].item}));
    add("items", values);
    add("hours", hours);
    const Reply reply = client->ask(Client::post("/v2/models/model/infer", json{{"inputs", inputs}}.dump()));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_NEAR(json::parse(reply.body).at("outputs").at(0).at("data").at(0).get<double>(), scores_[i], 1e-6);
  }
  const auto [least, largest] = std::minmax_element(scores_.begin(), scores_.end());
  EXPECT_GT(*largest - *least, 0.01) << "the scores do not differ";
  EXPECT_THAT(refused(*client, "/v1/score", json::parse(R"({"rows": [{"user": "u1", "items": ["film 2"]}]})")),
              HasSubstr(R"(the model has no column \"items\"; the nearest is)"));
  EXPECT_THAT(refused(*client, "/v1/events", {{"events", json::array()}}, 404),
              HasSubstr("the server keeps no histories: start it with --histories FILE"));
  const auto wrong = [&](const char* history) {
    return refused(*client, "/v1/score",
                   json::parse(str_cat(R"({"rows": [{"user": "u1", "item": "film 1", )", history, "}]}")));
  };
  EXPECT_THAT(wrong(R"("history": 3)"), HasSubstr(R"(row 1: \"history\" is a list of events, [{...}], with user, at)"));
  EXPECT_THAT(wrong(R"("history": [3])"), HasSubstr("is a list of events"));
  EXPECT_THAT(wrong(R"("history": {"item": "a"})"), HasSubstr("is a list of events"));
  EXPECT_THAT(wrong(R"("history": [{"item": "a", "at": "2024-01-01"}, {"item": "a"}])"),
              HasSubstr(R"(row 1, event 2, column \"at\" is missing: an event has user, at, item)"));
  EXPECT_THAT(wrong(R"("history": [{"item": "a", "at": null}])"),
              HasSubstr(R"(row 1, event 1, column \"at\": the event has no time)"));
  EXPECT_THAT(wrong(R"("history": [{"item": ["a"], "at": "2024-01-01"}])"),
              HasSubstr(R"(row 1, event 1, column \"item\" cannot be a list: an event has one value in it)"));
  EXPECT_THAT(wrong(R"("history": [{"item": "a", "at": "2024-01-02"}, {"item": "b", "at": "2024-01-01"}])"),
              HasSubstr(R"(row 1, event 2, column \"at\": the event is earlier than one of the same user)"));
  EXPECT_THAT(wrong(R"("history": [{"item": "a", "at": "2024-01-01"}, {"user": 2, "item": "a", "at": "2024-01-01"}])"),
              HasSubstr(R"(event 2, column \"user\": the event is of the user \"2\", and the row of the user \"u1\")"));
  EXPECT_THAT(wrong(R"("history": [], "history.item": ["a"])"),
              HasSubstr(R"(row 1 has \"history\" and \"history.item\", which it is made into: send one of them)"));
}

// Whatever is wrong with an event, those before it are added, and the sentence says how many.
void refuse_bad_events(Client& client) {
  constexpr const char* kGood = R"({"user": "new", "item": "a", "at": "2024-03-01"})";
  const std::pair<const char*, const char*> bad[] = {
      {R"({"user": "new", "item": "b"})", R"(column \"at\" is missing)"},
      {R"({"user": "new", "item": ["b"], "at": "2024-03-02"})", R"(column \"item\": an event has one value in it)"},
      {R"({"user": "new", "user": "u1", "item": "b", "at": "2024-03-02"})", R"(column \"user\" is there twice)"},
      {R"([3])", "is no object"}};
  const auto post = [&](const std::string& body) { return client.ask(Client::post("/v1/events", body)); };
  for (const auto& [event, why] : bad) {
    const Reply reply = post(str_cat(R"({"events": [)", kGood, ", ", event, ", ", event, "]}"));
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, AllOf(HasSubstr("event 2"), HasSubstr(why), HasSubstr("(events before it were added: 1)")));
  }
  for (const char* member : {R"("model": "m")", R"("id": "7")"})
    EXPECT_THAT(post(str_cat(R"({"events": [)", kGood, "], ", member, "}")).body,
                HasSubstr(R"(\" is not a member of a request of events: send {\"events\")"));
  EXPECT_THAT(post(R"({"events": [], "events": []})").body, HasSubstr(R"(\"events\" is there twice)"));
  EXPECT_THAT(post(str_cat(R"({"events": [)", kGood, R"(], "events": [}")")).body, HasSubstr("is there twice"));
  // Users of more digits than a double holds are others, and a text is the same user as the number.
  const auto user = [&](const std::string& name) {
    const Reply reply = post(str_cat(R"({"events": [{"user": )", name, R"(, "item": "a", "at": "2024-03-01"}]})"));
    EXPECT_EQ(reply.status, 200) << reply.body;
  };
  for (const char* name : {"100000000000000000000", "100000000000000000001", "\"100000000000000000000\""}) user(name);
  EXPECT_THAT(client.ask(Client::get("/metrics")).body, HasSubstr("tessera_history_users 16\n"));
}

// A request names only the user. Each event is added after it was asked about, as it comes after its history in a file.
TEST_F(ServedHistories, AreKeptForUsers) {
  const auto client = serve({"--histories", "-"});
  for (size_t i = 0; i < events_.size(); ++i) {
    ASSERT_NEAR(score(*client, asked(events_[i])), scores_[i], 1e-6) << i;
    const Reply reply = client->ask(Client::post("/v1/events", json{{"events", {events_[i].as_json()}}}.dump()));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.body, R"({"added":1})");
  }
  EXPECT_THAT(metrics(*client), AllOf(HasSubstr("tessera_history_users 13\n"), HasSubstr("_events_total 300\n"),
                                      HasSubstr("tessera_history_unknown_users_total 13\n"),
                                      HasSubstr("tessera_history_forgotten_users_total 0\n")));
  const auto added = [&](const char* events) {
    return refused(*client, "/v1/events", json::parse(str_cat(R"({"events": )", events, "}")));
  };
  EXPECT_THAT(added("[]"), HasSubstr(R"(\"events\" is empty: send {\"events\": [{...}]}, in which an event has user)"));
  EXPECT_THAT(added("3"), HasSubstr(R"(the request has no list of \"events\")"));
  EXPECT_THAT(added("[3]"), HasSubstr("event 1 is no object"));
  EXPECT_THAT(
      refused(*client, "/v1/score", json::parse(R"({"rows": [{"item": "a", "history": [{"item": "b", "at": 5}]}]})")),
      HasSubstr("is not a time, as the times are that the model was trained on"));
  EXPECT_THAT(added(R"([{"user": "u1", "item": "film 1"}])"), HasSubstr(R"(event 1, column \"at\" is missing)"));
  EXPECT_THAT(added(R"([{"user": "", "item": "film 1", "at": "2024-03-01"}])"),
              HasSubstr(R"(event 1, column \"user\": the event has no user)"));
  EXPECT_THAT(added(R"([{"user": "u1", "item": {}, "at": "2024-03-01"}])"),
              HasSubstr(R"(event 1, column \"item\": an event has one value in it)"));
  EXPECT_THAT(
      added(R"([{"user": "u1", "item": "a", "at": "2024-03-01"},{"user": "u1", "item": "b", "at": "2024-02-01"}])"),
      AllOf(HasSubstr(R"(event 2, column \"at\": the event is earlier than one of the same user, \"u1\")"),
            HasSubstr("(events before it were added: 1)")));
  ASSERT_NO_FATAL_FAILURE(refuse_bad_events(*client));
  EXPECT_THAT(refused(*client, "/v1/score", {{"rows", {{{"item", "film 1"}}}}}),
              HasSubstr(R"(row 1, column \"user\": the row has no user: name one)"));
  EXPECT_NEAR(score(*client, {{"user", "nobody"}, {"item", "film 1"}}),
              score(*client, {{"user", "nobody"}, {"item", "film 1"}, {"history", json::array()}}), 0)
      << "an unknown user has an empty history";
}

// The server reads the events of files at its start, and those of a directory to which files are added.
TEST_F(ServedHistories, BeginWithFilesAndGoOn) {
  write("first.csv", csv(0, 150));
  {
    const auto client = serve({"--histories", file("first.csv")});
    std::map<std::string, size_t> next;  // the first event of each user after those
    for (size_t i = events_.size(); i > 150; --i) next[events_[i - 1].user] = i - 1;
    ASSERT_EQ(next.size(), 13u);
    for (const auto& [user, i] : next) EXPECT_NEAR(score(*client, asked(events_[i])), scores_[i], 1e-6) << user;
  }
  std::filesystem::create_directory(file("events"));
  std::filesystem::rename(file("first.csv"), file("events/0.csv"));
  const auto client = serve({"--histories", file("events"), "--histories-reader", "growing(csv)"});
  EXPECT_NEAR(score(*client, asked(events_[150])), scores_[150], 1e-6);
  for (size_t i = 150; i < 250; i += 50) {
    write("next", csv(i, i + 50));
    std::filesystem::rename(file("next"), file(str_cat("events/", i, ".csv")));
    const std::string all = str_cat("tessera_history_events_total ", i + 50, "\n");
    for (int k = 0; k < 600 && metrics(*client).find(all) == std::string::npos; ++k)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ASSERT_THAT(metrics(*client), HasSubstr(all));
    EXPECT_NEAR(score(*client, asked(events_[i + 50])), scores_[i + 50], 1e-6);
  }
}

// A source in which there is always one more event does not keep the server from its start.
TEST_F(ServedHistories, BeginThoughEventsNeverRest) {
  std::filesystem::create_directory(file("events"));
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (int i = 1000; !stop; ++i) {
      write("next", str_cat("user,item,at,good\nnew,film 1,2024-02-01 00:00,", i % 2, "\n"));
      std::filesystem::rename(file("next"), file(str_cat("events/", i, ".csv")));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  const auto client = serve({"--histories", file("events"), "--histories-reader", "growing(csv)"});
  stop = true;
  writer.join();
  EXPECT_GT(score(*client, asked(events_[0])), 0);
}

TEST_F(ServedHistories, AreBoundedInMemory) {
  const auto client = serve({"--histories", "-", "--histories-mib", "1"});
  for (int part = 0; part < 10; ++part) {
    json events = json::array();
    for (int i = 0; i < 1000; ++i)
      events.push_back(
          {{"user", part * 1000 + i}, {"item", std::string(100, 'a')}, {"at", str_cat("2024-01-0", 1 + part / 2)}});
    const Reply reply = client->ask(Client::post("/v1/events", json{{"events", events}}.dump()));
    ASSERT_EQ(reply.body, R"({"added":1000})");
  }
  const std::string text = metrics(*client);
  const auto value = [&](const std::string& name) {
    return std::atoll(text.c_str() + text.find("\n" + name) + name.size() + 1);
  };
  EXPECT_GT(value("tessera_history_forgotten_users_total "), 1000) << text;
  EXPECT_LE(value("tessera_history_bytes "), 1 << 20);
  EXPECT_EQ(value("tessera_history_users ") + value("tessera_history_forgotten_users_total "), 10000);
}

TEST_F(ServedHistories, SayWhatIsWrong) {
  EXPECT_THAT(failed({"--histories-reader", "csv"}), HasSubstr("--histories-reader has no effect without --histories"));
  EXPECT_THAT(failed({"--histories-mib", "3"}), HasSubstr("--histories-mib has no effect without --histories"));
  EXPECT_THAT(failed({"--histories", "-", "--histories-reader", "csv"}), HasSubstr("has no effect with --histories -"));
  EXPECT_THAT(failed({"--histories", "-", "--model", str_cat("b=", file("model"))}),
              HasSubstr("--histories is for one model"));
  EXPECT_THAT(failed({"--histories", file("none.csv")}), HasSubstr("none.csv"));
  write("bad.csv", csv(0, 5) + "new,film 1,2020-01-01 00:00,1\nu0,,2024-02-01 00:00,1\n");
  EXPECT_THAT(failed({"--histories", file("bad.csv")}),
              AllOf(HasSubstr("bad.csv, row 7, column \"item\": the event has no value")));
  write("bad.csv", csv(0, 5) + "u0,film 1,2020-01-01 00:00,1\n");
  EXPECT_THAT(failed({"--histories", file("bad.csv")}),
              HasSubstr("bad.csv, row 6, column \"at\": the event is earlier than one of the same user, \"u0\""));
  const ServedModel plain;
  const test::Finished other =
      test::run_tessera({"serve", "--model", plain.link(), "--histories", "-", "--port", "0"}, 60);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output, HasSubstr("--histories: the model does not know the columns of its data"));
}

constexpr const char* kNextItemJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
dense_optimizer = {name = "adam", learning_rate = 0.01}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.2, eps = 1e-8}, init_range = 0.5}
history = {user = "user", time = "at", columns = ["item"], length = 3, samples = "users", split = "leave_one_out"}
layer = [{name = "states", type = "linear", inputs = ["items"], options = {width = 8}},
         {name = "compared", type = "item_loss", inputs = ["states", "next", "drawn", "next:ids", "drawn:ids"]}]
head = [{name = "loss", input = "compared", loss = "product"}]
column = [{name = "label", column = "history.label", as = "label"}, {name = "user"},
          {name = "items", column = "history.item"}, {name = "next", column = "next.item"},
          {name = "seen", column = "seen.item"}]
table = [
  {name = "user", rows = 13},
  {name = "item", rows = 30, pooling = "none", features = [
     "items", "next", "seen", "drawn?draw=all&first=1&during=training"]}]
)";

// The next items of a user are those of a file with its events, without all that it has had.
TEST(ServedNextItems, AreThoseOfAFile) {
  const test::JobFile job;
  std::string rows = "user,item,at\n";
  json of_user_3 = json::array();
  for (int i = 0; i < 130; ++i) {
    rows += str_cat(i % 13, ',', 1 + (i * 7 + i / 13) % 29, ',', i, '\n');
    if (i % 13 == 3) of_user_3.push_back({{"item", 1 + (i * 7 + i / 13) % 29}, {"at", i}});
  }
  job.write("events.csv", rows);
  job.write("job.toml",
            str_cat(kNextItemJob, "[data]\npath = \"", job.file("events.csv"), "\"\nbatch = 8\nepochs = 4\n"));
  succeed(job.train(1, {"--save", job.file("saved")}));
  succeed(
      test::run_tessera({"quantize", "--load", job.file("saved"), "--save", job.file("model"), "--weights", "fp32"}));
  const test::Arguments best = {"--model", job.file("model"), "--top-k", "3",         "--items",
                                "item",    "--query",         "states",  "--exclude", "seen"};
  succeed(test::run_tessera(test::Arguments{"predict", "--config", job.path(), "--set", "history.samples=requests",
                                            "--format", "jsonl", "--output", job.file("items.jsonl")} +
                            best));
  // The events alone say as much: what comes next is asked for, although training predicted a user's last event.
  succeed(test::run_tessera(test::Arguments{"predict", "--data", job.file("events.csv"), "--format", "jsonl",
                                            "--output", job.file("of_events.jsonl")} +
                            best));
  EXPECT_EQ(test::contents(job.file("of_events.jsonl")), test::contents(job.file("items.jsonl")));
  // Files of another kind get the reader of their kind inside that of histories.
  std::replace(rows.begin(), rows.end(), ',', '\t');
  job.write("events.tsv", rows);
  succeed(test::run_tessera(test::Arguments{"predict", "--data", job.file("events.tsv"), "--format", "jsonl",
                                            "--output", job.file("of_tabs.jsonl")} +
                            best));
  EXPECT_EQ(test::contents(job.file("of_tabs.jsonl")), test::contents(job.file("items.jsonl")));
  test::expect_refused(test::Arguments{"predict", "--data", job.file("events.csv"), "--reader", "csv"} + best,
                       HasSubstr("so name --reader 'histories?"));
  const Program program(
      test::Arguments{test::tessera_path(), "serve", "--port", "0", "--histories", job.file("events.csv")} + best);
  Client client(port_of(program));
  const auto items = [&](const json& row) {
    const Reply reply = client.ask(Client::post("/v1/score", json{{"rows", {row}}}.dump()));
    EXPECT_EQ(reply.status, 200) << reply.body;
    json out = json::array();
    const json body = json::parse(reply.body);
    for (size_t i = 0; body.contains("items") && i < 3; ++i) out.push_back(body["items"][0][i].at("item"));
    return out;
  };
  std::ifstream in(job.file("items.jsonl"));
  int user = 0;
  for (std::string line; std::getline(in, line); ++user) {
    EXPECT_EQ(items({{"user", user}}), json::parse(line).at("items")) << user;
  }
  EXPECT_EQ(user, 13);
  EXPECT_EQ(items({{"user", 3}, {"history", of_user_3}}), items({{"user", 3}}));
  const Reply reply = client.ask(Client::post("/v1/score", R"({"rows": [{"user": 99}]})"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr(R"(row 1, column \"user\": the server has no events of the user \"99\")"));

  // An event that no row could be scored with is refused, and its user keeps the history.
  const json before = items({{"user", 3}});
  for (const auto& [item, why] :
       std::vector<std::pair<json, std::string>>{{999, "the id 999 is none of the model's, which are 0 to 29"},
                                                 {-3, "the id -3 is none of the model's"},
                                                 {"abc", R"(\"abc\" is not a whole number)"},
                                                 {3.5, R"(\"3.5\" is not a whole number)"}}) {
    const json event = {{"user", 3}, {"item", item}, {"at", 1000}};
    const Reply refused = client.ask(Client::post("/v1/events", json{{"events", {event}}}.dump()));
    EXPECT_EQ(refused.status, 400) << item;
    EXPECT_THAT(refused.body, HasSubstr(R"(event 1, column \"item\": )" + why));
  }
  EXPECT_EQ(items({{"user", 3}}), before);
}

}  // namespace
}  // namespace tessera::serve
