// Models that take sequences: tables whose rows are not pooled, one of them with two features. Same losses on any
// number of ranks and under any plan; saving, continuing, packing and predicting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "graph_job.h"
#include "job_file.h"
#include "spawn.h"
#include "tessera/config.h"
#include "tessera/error.h"
#include "tessera/layer_graph.h"
#include "tessera/predictor.h"
#include "tessera/runtime.h"
#include "tessera/sharding.h"
#include "tessera_program.h"

namespace tessera::test::sequence_model_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kJob = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.05, eps = 1e-8}}
table = [
  {name = "user", features = ["c0"]},
  {name = "item", features = ["c1", "c2"], pooling = "none"},
  {name = "c3", pooling = "none"}]
layer = [
  {name = "target", type = "sum_pooling", inputs = ["c1"]},
  {name = "interest", type = "target_attention", inputs = ["target", "c2"], options = {widths = [8]}},
  {name = "largest", type = "max_pooling", inputs = ["c2"]},
  {name = "weighed", type = "position_weights", inputs = ["c3"], options = {max_length = 3}},
  {name = "top", type = "mlp", inputs = [
     "dense", "user", "target", "interest", "largest", "weighed"], options = {widths = [16, 1]}}]
[[head]]
name = "click"
input = "top"
[data]
reader = "synthetic"
columns = 4
rows = [300, 60, 60, 20]
pooling = [1, 1, 5, 3]
dense = 3
samples = 1200
test_samples = 300
batch = 32
)";

class SequenceModels : public testing::Test, protected JobFile {
 protected:
  SequenceModels() : JobFile(kJob) {}
};

TEST_F(SequenceModels, TrainToTheSameLossesUnderEveryPlanAndLearn) {
  const json one = trained(1, {});
  const auto losses = one.at("losses").get<std::vector<double>>();
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_GT(one.at("test").at("auc").get<double>(), 0.6);
  EXPECT_EQ(one.at("plan").at("modules").size(), 2u) << one.at("plan");
  EXPECT_THAT(one.at("plan").at("modules").dump(), HasSubstr(kSequencePath));
  for (const char* sharding : {"row_wise", "column_wise", "data_parallel"}) {
    SCOPED_TRACE(sharding);
    const json two = trained(2, {"--set", str_cat("table_defaults.sharding=", sharding)});
    expect_same_losses(one, two);
    EXPECT_NEAR(two.at("test").at("auc").get<double>(), one.at("test").at("auc").get<double>(), 1e-3);
  }
  const json ahead = trained(2, {"--set", "job.pipeline=true", "--set", "schedule.tables=linear?steps=10"});
  expect_same_losses(trained(1, {"--set", "schedule.tables=linear?steps=10"}), ahead);
}

TEST_F(SequenceModels, GoOnFromACheckpointOfOtherRanks) {
  const std::string checkpoint = folder_.file("checkpoint");
  trained(2, {"--save", checkpoint, "--max-steps", "20"});
  const json rest = trained(1, {"--load", checkpoint});
  EXPECT_EQ(rest.at("first_step"), 20);
  expect_same_losses(trained(1, {}), rest);
}

// Samples of the four features. `missing`: the history contains an id that is in no table.
struct Samples {
  explicit Samples(bool missing) {
    std::mt19937 random(7);
    const int64_t rows[] = {300, 60, 60, 20};
    for (size_t f = 0; f < 4; ++f) {
      for (int64_t s = 0; s < kBatch; ++s) {
        lengths[f].push_back(f < 2 ? 1 : static_cast<int32_t>(random() % 4));
        for (int i = 0; i < lengths[f].back(); ++i) ids[f].push_back(static_cast<int64_t>(random()) % rows[f]);
      }
    }
    if (missing) ids[2].at(1) = 1000;
    for (int64_t i = 0; i < 3 * kBatch; ++i) dense.push_back(static_cast<float>(i % 5) - 2);
    for (size_t f = 0; f < 4; ++f) features.push_back({ids[f], lengths[f], {}});
  }
  PredictInput input() const { return {kBatch, dense, features}; }
  static constexpr int64_t kBatch = 9;
  std::vector<int64_t> ids[4];
  std::vector<int32_t> lengths[4];
  std::vector<float> dense;
  std::vector<PredictInput::Feature> features;
};

// True if an id that is in no table, which reads as zeros, changes the score.
bool scores_differ(Predictor& predictor) {
  std::vector<float> known(Samples::kBatch), missing(Samples::kBatch);
  predictor.predict(Samples(false).input(), known);
  predictor.predict(Samples(true).input(), missing);
  for (const std::vector<float>* scores : {&known, &missing}) {
    for (const float s : *scores) EXPECT_TRUE(s > 0 && s < 1);
  }
  return known != missing;
}

// Two ranks with all tables sharded this way ("": as the planner chooses) give the scores of one process.
void expect_same_over_ranks(const std::string& model, const std::string& sharding) {
  const auto texts = cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 30});
    ShardedPredictorOptions options;
    if (!sharding.empty()) {
      options.plan.emplace();
      for (const QuantizedTable& t : open_packed_model(model).tables)
        options.plan->add(t.config.name,
                          make_sharding(runtime, t.config, {.sharding_type = sharding}, Topology::of(2, 2)));
    }
    const auto sharded = open_sharded_predictor(runtime, model, group, options);
    if (where.rank > 0) {
      sharded->serve_shard();
      return "";
    }
    const auto alone = open_predictor(runtime, model);
    for (const bool missing : {false, true, false}) {
      std::vector<float> want(Samples::kBatch), got(Samples::kBatch);
      alone->predict(Samples(missing).input(), want);
      sharded->predict(Samples(missing).input(), got);
      for (size_t i = 0; i < want.size(); ++i) {
        if (std::abs(want[i] - got[i]) > 1e-6) return str_cat("sample ", i, " has ", got[i], " instead of ", want[i]);
      }
    }
    return "";
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "") << sharding;
}

// The packed model has the AUC that training has found, and also answers for an id that is in no table.
TEST_F(SequenceModels, ArePackedAndAsked) {
  const std::string checkpoint = folder_.file("checkpoint"), model = folder_.file("model");
  const json report = trained(2, {"--save", checkpoint, "--set", "table_defaults.bounds_check=ignore", "--set",
                                  "table_defaults.sharding=data_parallel"});
  const std::string packed =
      succeed({"quantize", "--load", checkpoint, "--save", model, "--weights", "fp32", "--config",
               folder_.file("job.toml"), "--set", "table_defaults.bounds_check=ignore"});
  const size_t auc = packed.find("AUC ");
  ASSERT_NE(auc, std::string::npos) << packed;
  EXPECT_NEAR(std::stod(packed.substr(auc + 4)), report.at("test").at("auc").get<double>(), 1e-5);
  EXPECT_THAT(succeed({"predict", "--model", model, "--data",
                       folder_.write("samples.tsv", "1\t0,1,0\t3\t17\t3,4\t5\n0\t0,0,1\t29\t0\t\t1,1\n")}),
              AllOf(HasSubstr("row,label,score"), testing::Not(HasSubstr("nan"))));
  const Runtime runtime;
  EXPECT_TRUE(scores_differ(*open_predictor(runtime, model)));
  expect_same_over_ranks(model, "");
  expect_same_over_ranks(model, "row_wise");
  expect_same_over_ranks(model, "data_parallel");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST_F(SequenceModels, SayWhatASequenceIsNot) {
  const auto refused = [&](const std::string& from, const std::string& to) {
    return test::refused(run_tessera({"train", "--config", folder_.write("wrong.toml", replaced(kJob, from, to))}, 60));
  };
  EXPECT_THAT(refused("\"largest\", \"weighed\"]", "\"largest\", \"weighed\", \"c2\"]"),
              AllOf(HasSubstr("the layer \"top\""), HasSubstr("c2 (a sequence of 8 values)"), HasSubstr("pool it")));
  EXPECT_THAT(refused("inputs = [\"c3\"]", "inputs = [\"user\"]"),
              AllOf(HasSubstr("the layer \"weighed\" of user (8 values)"), HasSubstr("whose pooling is none")));
  EXPECT_THAT(refused("name = \"click\"\ninput = \"top\"",
                      "name = \"click\"\ninput = \"top\"\n[[head]]\nname = \"raw\"\ninput = \"c2\""),
              HasSubstr("the head \"raw\" takes the sequence \"c2\""));
  EXPECT_THAT(refused("features = [\"c0\"]", "features = [\"c0\"], pooling = \"none\""),
              HasSubstr("a model needs one that is pooled"));
  EXPECT_THAT(refused("[data]", "[validation]\nfraction = 0.1\nsplit = \"data\"\n[data]"),
              HasSubstr("the reader \"synthetic\" keeps no rows for validation"));
  EXPECT_THAT(refused("max_length = 3", "max_length = 2"), HasSubstr("truncate the lists or raise it"));
}

const std::string kNextItem = R"(
job = {seed = 3, device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8}
metrics = {names = ["rank.hit_rate@1", "rank.ndcg@10", "rank.mrr"]}
validation = {split = "data", fraction = 0.5, monitor = "rank.ndcg@10"}
dense_optimizer = {name = "adam", learning_rate = 0.01}
table_defaults = {optimizer = {name = "exact_adagrad", learning_rate = 0.2, eps = 1e-8}, init_range = 0.5}
table = [
  {name = "user"},
  {name = "item", pooling = "none", features = [
     "items", "next", "seen", "drawn?draw=all&first=1&during=training", "all?draw=all&first=1&during=evaluation"]}]
[[layer]]
name = "placed"
type = "position_embedding"
inputs = ["items"]
options = {length = 5}
[[layer]]
name = "states"
type = "linear"
inputs = ["placed"]
options = {width = 8}
)" + kItemHeads;

// The jobs that are shipped name components, not the files that have them.
TEST(ShippedJobs, RequireComponentsThatExist) {
  size_t jobs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml" || entry.path().parent_path().filename() == "bench") continue;
    SCOPED_TRACE(entry.path());
    const Config config = load_config(entry.path());
    EXPECT_NO_THROW(Runtime({.plugin_path = {TESSERA_TEST_PLUGINS}, .require = config.plugins.require}));
    ++jobs;
  }
  EXPECT_GT(jobs, 25u);
}

// Users go round 20 items, each from another one on, so that an item tells the next.
class NextItem : public testing::Test, protected JobFile {
 protected:
  NextItem() {
    std::string lines;
    for (int user = 0; user < 40; ++user) {
      lines += std::to_string(user);
      for (int i = 0; i < 4 + user % 7; ++i) lines += str_cat(" ", 1 + (3 * user + i) % 20);
      lines += "\n";
    }
    write("histories.txt", lines);
    write("job.toml",
          str_cat(kNextItem, "[data]\nreader = \"user-items?history=5\"\nbatch = 16\nepochs = 12\npath = \"",
                  file("histories.txt"), "\"\n"));
  }
  // The answer for each of the 40 users.
  std::vector<json> answers(const Arguments& more) const {
    succeed(asked(Arguments{"--format", "jsonl", "--output", file("items.jsonl")} + more));
    std::ifstream in(file("items.jsonl"));
    std::vector<json> out;
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    EXPECT_EQ(out.size(), 40u);
    return out;
  }
  Finished asked(const Arguments& more) const {
    return run_tessera(Arguments{"predict", "--model", file("model"), "--data", file("histories.txt"), "--reader",
                                 "user-items?history=5&split=false"} +
                           more,
                       60);
  }
  void pack() const {
    succeed(train(1, {"--save", file("saved")}));
    succeed({"quantize", "--load", file("saved"), "--save", file("model"), "--weights", "fp32"});
  }
  static std::vector<int> seen_by(int user) {
    std::vector<int> out;
    for (int i = 0; i < 4 + user % 7; ++i) out.push_back(1 + (3 * user + i) % 20);
    return out;
  }
  static int next_of(int user) { return 1 + seen_by(user).back() % 20; }
  static Arguments drawn(const std::string& feature, const std::string& options, const std::string& ranked = "") {
    return settings({str_cat(R"(table.item.features=["items", "next", "seen", ")", feature,
                             R"(", "all?draw=all&first=1&during=evaluation)", ranked, "\"]"),
                     str_cat("layer.compared.options=", options), "data.epochs=2"});
  }
};

TEST_F(NextItem, IsLearntAndItsLossesAreThoseOfAnyNumberOfRanks) {
  const json one = trained(1, {});
  EXPECT_GT(one.at("test").at("rank.hit_rate@1").get<double>(), 0.9) << one.at("test");
  const json two = trained(2, settings({"table.item.sharding=row_wise"}));
  expect_same_losses(one, two, 1e-3);
  EXPECT_EQ(two.at("test").at("rank.hit_rate@1"), one.at("test").at("rank.hit_rate@1"));
}

// Each rank has its part of the candidates, and the loss is the one over all of them.
TEST_F(NextItem, ASoftmaxIsDividedAmongTheRanks) {
  const std::string all = "drawn?draw=all&first=1&during=training";
  const json whole = trained(1, drawn(all, "{}"));
  expect_same_losses(whole, trained(1, drawn(all + "&split=true", "{split = true}")), 1e-5);
  for (const char* plan : {"row_wise", "table_wise", "column_wise", "data_parallel"}) {
    SCOPED_TRACE(plan);
    const Arguments split = drawn(all + "&split=true", "{split = true}");
    const json two = trained(2, split + settings({str_cat("table.item.sharding=", plan)}));
    expect_same_losses(whole, two, 1e-4);
    EXPECT_EQ(two.at("test").at("rank.mrr"), whole.at("test").at("rank.mrr"));
  }
  // The planner knows what is drawn: what it expects to travel is near what did.
  for (const char* split : {"", "&split=true"}) {
    const json two = trained(2, drawn(all + split, *split ? "{split = true}" : "{}") +
                                    settings({"table.item.sharding=row_wise", "table.item.rows=2000"}));
    const json& rows = two.at("bytes_per_step").at("rows").at("in_host");
    EXPECT_NEAR(rows.at("planned").get<double>() / rows.at("sent").get<double>(), 1, 0.5) << rows;
  }
  // 40 rows in batches of 3 leave one for the last step, so that two of three ranks have none.
  const Arguments small = settings({"data.batch=3"});
  expect_same_losses(trained(1, drawn(all, "{}") + small),
                     trained(3, drawn(all + "&split=true", "{split = true}") + small), 1e-4);
}

// The candidates of the metrics are divided: each rank counts the items before the wanted one among its own.
TEST_F(NextItem, RanksAmongAllItemsAreDividedToo) {
  const std::string all = "drawn?draw=all&first=1&during=training";
  const Arguments split = drawn(all + "&split=true", "{split = true}", "&split=true");
  const json whole = trained(1, drawn(all, "{}")), alone = trained(1, split);
  const auto expect_same_test = [](const json& a, const json& b) {
    for (const char* metric : {"rank.hit_rate@1", "rank.ndcg@10", "rank.mrr"})
      EXPECT_EQ(a.at("test").at(metric), b.at("test").at(metric)) << metric;
  };
  expect_same_test(alone, trained(1, drawn(all + "&split=true", "{split = true}")));
  for (const char* plan : {"row_wise", "table_wise"}) {
    const Arguments how = settings({str_cat("table.item.sharding=", plan)});
    const json two = trained(2, split + how), rows = trained(2, drawn(all + "&split=true", "{split = true}") + how);
    expect_same_losses(whole, two, 1e-4);
    expect_same_test(two, rows);
  }
  // One feature serves both the loss and the metrics. In the last batch two of three ranks have no sample.
  const Arguments both =
      settings({R"(table.item.features=["items", "next", "seen", "all?draw=all&first=1&split=true"])",
                R"(layer.compared.inputs=["states", "next", "all", "next:ids", "all:ids"])",
                "layer.compared.options={split = true}", "data.batch=3", "data.epochs=2"});
  const json three = trained(3, both), small = trained(1, drawn(all, "{}") + settings({"data.batch=3"}));
  expect_same_losses(small, three, 1e-4);
  expect_same_test(three, small);
}

// Without this, the loss would be 0 in every step, and every rank a miss.
TEST_F(NextItem, CandidatesOfTheOtherPhaseAreRefused) {
  const auto refused = [&](const std::string& key) { return test::refused(train(0, settings({key}))); };
  EXPECT_THAT(
      refused(R"(layer.compared.inputs=["states", "next", "all", "next:ids", "all:ids"])"),
      AllOf(HasSubstr("the layer \"compared\""), HasSubstr("all (a sequence of 8 values, drawn during=evaluation)"),
            HasSubstr("its candidates (input 2) are drawn in evaluation alone")));
  EXPECT_THAT(
      refused(R"(layer.ranks.inputs=["states", "drawn", "next:ids", "drawn:ids", "seen:ids"])"),
      AllOf(HasSubstr("the layer \"ranks\""), HasSubstr("drawn (a sequence of 8 values, drawn during=training)"),
            HasSubstr("its candidates (input 1) are drawn in training alone")));
}

TEST_F(NextItem, ADividedSoftmaxIsRefusedInHalves) {
  const std::string all = "drawn?draw=all&first=1&during=training";
  const auto refused = [&](const std::string& options, const std::string& layer, int ranks = 2) {
    return test::refused(train(ranks, drawn("drawn?draw=all&first=1" + options, layer)));
  };
  EXPECT_THAT(refused("&during=training&split=true", "{}", 0), HasSubstr("set the option \"split\" of item_loss, too"));
  EXPECT_THAT(refused("&during=training", "{split = true}"), HasSubstr("several ranks have the candidate 1"));
  EXPECT_THAT(refused("&split=true", "{}", 0), HasSubstr("set the option \"split\" of item_loss, too"));
  EXPECT_THAT(refused("&during=training&split=true", R"({split = true, kind = "bce"})", 0),
              HasSubstr("is for a softmax whose candidates all samples share"));
  const std::string ranked = R"(layer.ranks.inputs=["states", "drawn", "next:ids", "drawn:ids", "seen:ids"])";
  const Finished other =
      train(0, drawn("drawn?draw=all&first=1&during=training&split=true", "{split = true}") + settings({ranked}));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.output,
              HasSubstr("ranks in evaluations, but its candidates (input 1) are drawn in training alone"));
  expect_refused(train(0, drawn(all, "{}", "&split=true") +
                              settings({R"(layer.ranks.inputs=["all", "all", "next:ids", "all:ids", "seen:ids"])"})),
                 HasSubstr("each rank has other rows of input 0: only candidates may be split"));
  std::string job = kNextItem;
  const std::string ranks = R"(type = "item_ranks"
inputs = ["states", "all", "next:ids", "all:ids", "seen:ids"]
options = {seen = true})";
  job.replace(job.find(ranks), ranks.size(),
              "type = \"linear\"\ninputs = [\"together\"]\noptions = {width = 1}\n"
              "[[layer]]\nname = \"together\"\ntype = \"sum_pooling\"\ninputs = [\"all\"]");
  const std::string monitor = ", monitor = \"rank.ndcg@10\"";
  job.erase(job.find(monitor), monitor.size());
  write("job.toml", job + "[data]\nreader = \"user-items?history=5\"\npath = \"" + file("histories.txt") + "\"\n");
  expect_refused(train(0, drawn(all, "{}", "&split=true") + settings({"metrics.names=[\"rank.rmse\"]"})),
                 HasSubstr("each rank has other rows of input 0, and this layer does not combine"));
}

TEST_F(NextItem, NegativesAreTheSameOnAnyNumberOfRanks) {
  const Arguments how = drawn("drawn?draw=popularity&of=next&count=6&per=sample&during=training",
                              R"({kind = "gbce", items = 20, negatives = "sample"})");
  const json one = trained(1, how);
  expect_same_losses(one, trained(2, how + settings({"table.item.sharding=table_wise"})));
  EXPECT_LT(losses_of(one).back(), losses_of(one).front());
}

// Candidates of a batch are rows of its first sample, so other samples would be compared with nothing.
TEST_F(NextItem, CandidatesAreDrawnAsTheirLayerTakesThem) {
  const auto refused = [&](const std::string& feature, const std::string& options, const std::string& more = "") {
    return test::refused(train(0, drawn(feature, options, more)));
  };
  const std::string uniform = "drawn?draw=uniform&count=6&during=training";
  for (const char* negatives : {"sample", "row"}) {
    EXPECT_THAT(
        refused(uniform, str_cat("{negatives = \"", negatives, "\"}")),
        AllOf(HasSubstr("the layer \"compared\" of"), HasSubstr("takes each sample's own candidates, but input 2"),
              HasSubstr("is drawn for the batch: draw it with per=sample")));
  }
  EXPECT_THAT(refused("drawn?draw=all&during=training", R"({negatives = "sample"})"),
              HasSubstr("draw it with draw=uniform, count and per=sample"));
  EXPECT_THAT(refused(uniform + "&per=sample", "{}"), HasSubstr("takes candidates that all samples of a rank share"));
  const std::string one = R"(layer.ranks.inputs=["states", "some", "next:ids", "some:ids", "seen:ids"])";
  const std::string features = R"(table.item.features=["items", "next", "seen", "drawn?draw=all&during=training", )"
                               R"("some?draw=uniform&count=5&during=evaluation)";
  for (const char* per : {"", "&per=sample"}) {
    EXPECT_THAT(test::refused(train(0, settings({features + per + "\"]", one, R"(metrics.names=["rank.mrr"])",
                                                 "validation.monitor=rank.mrr"}))),
                HasSubstr("item_ranks compares an item with each other item once, but input 1 may have an id twice"));
  }
}

// The value of a head of product is a loss or a rank, so its error against the label 1 says nothing.
TEST_F(NextItem, HasNoMetricsUnlessItAsksForThem) {
  const std::string metrics = "metrics = {names = [\"rank.hit_rate@1\", \"rank.ndcg@10\", \"rank.mrr\"]}\n";
  const std::string job = replaced(contents(path()), metrics, "");
  write("job.toml", replaced(job, ", monitor = \"rank.ndcg@10\"", ""));
  for (const char* more : {"validation.patience=2", "validation.restore_best=true"}) {
    EXPECT_THAT(test::refused(train(0, settings({more}))), AllOf(HasSubstr("no head of the model has a metric"),
                                                                 HasSubstr("ask in metrics.names for those that")));
  }
  write("job.toml", replaced(contents(path()), "validation = {split = \"data\", fraction = 0.5}\n", ""));
  const Finished run = train(1, settings({"data.epochs=1"}));
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("no head has metrics"), Not(HasSubstr("rmse"))));
}

// The packed model takes a history and answers with items that the user has not had.
TEST_F(NextItem, IsAnsweredForAHistory) {
  pack();
  expect_refused(asked({}), AllOf(HasSubstr("every head of model model compares with ids that training draws"),
                                  HasSubstr("--top-k K --items item --query LAYER")));
  const Arguments best = {"--top-k", "12", "--items", "item", "--query", "states"};
  const std::vector<json> any = answers(best), unseen = answers(best + Arguments{"--exclude", "seen"});
  int right = 0;
  for (int user = 0; user < 40; ++user) {
    const std::vector<int> seen = seen_by(user);
    const auto is_seen = [&](int item) { return std::find(seen.begin(), seen.end(), item) != seen.end(); };
    auto expected = any[static_cast<size_t>(user)].at("items").get<std::vector<int>>();
    EXPECT_EQ(std::count(expected.begin(), expected.end(), 0), 0) << "row 0 is never drawn, and so no item";
    std::erase_if(expected, is_seen);
    auto items = unseen[static_cast<size_t>(user)].at("items").get<std::vector<int>>();
    EXPECT_EQ(items.size(), 12u);
    EXPECT_TRUE(std::none_of(items.begin(), items.end(), is_seen)) << user;
    right += items.front() == next_of(user);
    items.resize(expected.size());
    EXPECT_EQ(items, expected) << "the same order, without the seen ones";
  }
  EXPECT_GT(right, 36);
  const auto refused = [&](const Arguments& how) { return test::refused(asked(how)); };
  expect_refused(run_tessera(Arguments{"predict", "--model", file("model"), "--data",
                                       write("rows.tsv", "1\t\t3\t2,5\t\t\t\t\n1\t\t3\t\t\t\t\t\n")} +
                                 best,
                             60),
                 HasSubstr("sample 1 has no row of \"states\", whose last row is the answer"));
  EXPECT_THAT(refused(best + Arguments{"--exclude", "sen"}),
              HasSubstr("--exclude: the model has no feature \"sen\", only user, items, next, seen, drawn, all"));
  EXPECT_THAT(refused({"--top-k", "21", "--items", "item", "--query", "states"}),
              HasSubstr("--top-k 21 is more than the 20 items of item"));
  EXPECT_THAT(refused({"--top-k", "2", "--items", "item", "--query", "placed"}),
              HasSubstr("no head compares \"placed\" with the rows of table \"item\" as they are"));
}

// Cosines: a layer makes the items of the rows.
TEST_F(NextItem, IsAnsweredByItemsThatALayerMakes) {
  std::string job = contents(path());
  for (const char* name : {"states", "next", "drawn", "all"}) {
    const std::string input = str_cat('"', name, "\", "), norm = str_cat('"', name, "_norm\", ");
    const size_t compared = job.find("[[layer]]\nname = \"compared\"");
    for (size_t at = job.find(input, compared); at != std::string::npos; at = job.find(input, at + norm.size()))
      job.replace(at, input.size(), norm);
    job.insert(compared,
               str_cat("[[layer]]\nname = \"", name, "_norm\"\ntype = \"l2_norm\"\ninputs = [\"", name, "\"]\n"));
  }
  write("job.toml", replaced(job, "\"drawn:ids\"]", "\"drawn:ids\"]\noptions = {temperature = 0.1}"));
  pack();
  int right = 0;
  const std::vector<json> all = answers({"--top-k", "1", "--items", "all_norm", "--query", "states_norm"});
  for (int user = 0; user < 40; ++user) right += all[static_cast<size_t>(user)].at("items").at(0) == next_of(user);
  EXPECT_GT(right, 36);
  for (const json& one : all) EXPECT_LE(one.at("scores").at(0).get<double>(), 1.0001) << "a cosine";
  EXPECT_THAT(asked({"--top-k", "1", "--items", "item", "--query", "states_norm"}).output,
              HasSubstr("no head compares \"states_norm\" with the rows of table \"item\" as they are"));
  EXPECT_THAT(asked({"--top-k", "1", "--items", "placed", "--query", "states_norm"}).output,
              HasSubstr("the layer \"placed\" takes no ids that training draws"));
}

TEST_F(NextItem, SaysWhatIsWrong) {
  const auto refused = [&](const Arguments& how) { return test::refused(train(0, how)); };
  EXPECT_THAT(refused(settings({"metrics.names=[\"rank.hit_rate@21\"]", "validation.monitor=rank.hit_rate@21"})),
              HasSubstr("the metric \"hit_rate@21\" of the head \"rank\" counts 21 places, but the head compares only "
                        "20 items: ask for at most 20"));
  EXPECT_THAT(refused(settings({"table.item.rows=12"})), HasSubstr("is not in table \"item\", whose ids are 0 to 11"));
  EXPECT_THAT(refused(settings({"layer.placed.options.length=3"})),
              HasSubstr("rows, but position_embedding's \"length\" is 3: truncate the lists or raise it"));
  EXPECT_THAT(refused(drawn("drawn?draw=some", "{}")), HasSubstr("option \"draw\" is \"some\", but must be all, unif"));
  for (const char* of : {"nxt", "user"}) {
    EXPECT_THAT(refused(drawn(str_cat("drawn?draw=popularity&count=3&of=", of), "{}")),
                HasSubstr(str_cat("of is \"", of, "\", but the ids to count are those of a feature of this table")));
  }
  EXPECT_THAT(refused(drawn("drawn?draw=uniform", "{}")), HasSubstr("it needs count, the number of ids"));
  EXPECT_THAT(refused(drawn("drawn?draw=all", R"({kind = "gbce"})")), HasSubstr("the number of items, at least 2"));
  EXPECT_THAT(refused(drawn("drawn?draw=all&first=1", "{}") +
                      settings({"metrics.names=[\"loss.ndcg@10\"]", "validation.monitor=loss.ndcg@10"})),
              HasSubstr("needs ranks, which the layer item_ranks gives"));
  EXPECT_THAT(refused(settings({"metrics.names=[\"rank.ndcg@0\"]"})), HasSubstr("a number of places from 1 on"));
}

}  // namespace
}  // namespace tessera::test::sequence_model_test
