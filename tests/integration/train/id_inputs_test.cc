// Ids of samples as inputs of layers and losses: the softmax over a batch without equal items, and pairs within one
// group. Compares training with plain formulas, on several ranks, and tests a packed model and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "config/test_refusal.h"
#include "graph_job.h"
#include "job_file.h"
#include "tessera/predictor.h"
#include "tessera/trainer.h"
#include "tessera_program.h"

namespace tessera::test::id_inputs_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Runtime& runtime() {
  static const Runtime it({.plugin_path = {TESSERA_TEST_PLUGINS}});
  return it;
}

EmbeddingBagConfig table(const std::string& name, int64_t dim) {
  return {.name = name, .num_embeddings = 10, .embedding_dim = dim, .feature_names = {name}};
}

std::string refusal(const std::function<void()>& of) {
  return test::refusal([&] { of(); }, "nothing was refused");
}

// The sum of -log softmax of each sample's own item among those with other ids, times fixed factors.
class Softmax {
 public:
  Softmax(std::vector<double> queries, std::vector<double> items, std::vector<int64_t> ids, double temperature)
      : queries(std::move(queries)), items(std::move(items)), ids_(std::move(ids)), temperature_(temperature) {}

  std::vector<double> losses(const std::vector<double>& log_q = {}) const {
    const size_t batch = ids_.size(), dim = queries.size() / batch;
    std::vector<double> out;
    for (size_t s = 0; s < batch; ++s) {
      double sum = 0, own = 0;
      for (size_t j = 0; j < batch; ++j) {
        if (j != s && ids_[j] == ids_[s]) continue;
        double z = log_q.empty() ? 0 : -log_q[j];
        for (size_t i = 0; i < dim; ++i) z += queries[s * dim + i] * items[j * dim + i] / temperature_;
        sum += std::exp(z);
        if (j == s) own = z;
      }
      out.push_back(std::log(sum) - own);
    }
    return out;
  }

  std::vector<double> queries, items;  // [batch, dim]

 private:
  std::vector<int64_t> ids_;
  double temperature_;
};

ModelGraph towers() {
  ModelGraph graph = graph_over(0, {table("user", 3), table("film", 3)});
  graph.layers = {{"softmax", "sampled_softmax", {"user", "film", "film:ids"}, R"({"temperature": 0.5})"}};
  graph.heads = {{"h", "softmax"}};
  add_id_inputs({table("user", 3), table("film", 3)}, graph);
  return graph;
}

TEST(IdInputs, GiveLayersTheIdsOfTheBatch) {
  const ModelGraph graph = towers();
  ASSERT_EQ(graph.ids.size(), 1u);
  EXPECT_EQ(graph.ids[0].name, "film");
  EXPECT_EQ(graph.ids[0].sequence, -1) << "one of each sample";
  LayerGraph layers(runtime(), graph, {.seed = 1});
  constexpr int64_t kBatch = 5;
  std::mt19937_64 random(7);
  std::normal_distribution<float> normal;
  const Tensor pooled = Tensor::empty({kBatch, 6}), factors = Tensor::empty({kBatch, 1});
  for (float& v : pooled.span<float>()) v = normal(random);
  for (float& v : factors.span<float>()) v = normal(random);
  const std::vector<int64_t> ids = {4, 9, 4, 2, 9};
  Softmax plain({}, {}, ids, 0.5);
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t i = 0; i < 3; ++i) plain.queries.push_back(pooled.item(s * 6 + i));
    for (int64_t i = 3; i < 6; ++i) plain.items.push_back(pooled.item(s * 6 + i));
  }
  const Tensor losses =
      layers.forward(Tensor::empty({kBatch, 0}), pooled, true, {}, {Tensor::from(ids).reshape({kBatch, 1})})[0];
  for (int64_t s = 0; s < kBatch; ++s) EXPECT_NEAR(losses.item(s), plain.losses()[static_cast<size_t>(s)], 1e-5);
  const Tensor got = layers.backward({factors});
  const auto weighed = [&] {
    double sum = 0;
    for (size_t s = 0; s < ids.size(); ++s) sum += plain.losses()[s] * factors.item(static_cast<int64_t>(s));
    return sum;
  };
  for (int64_t at = 0; at < pooled.numel(); ++at) {
    const auto place = static_cast<size_t>(at / 6 * 3 + at % 3);
    double& x = (at % 6 < 3 ? plain.queries : plain.items)[place];
    const double before = x;
    x = before + 1e-6;
    const double above = weighed();
    x = before - 1e-6;
    const double below = weighed();
    x = before;
    EXPECT_NEAR(got.item(at), (above - below) / 2e-6, 1e-5) << at;
  }
}

TEST(IdInputs, ThatDoNotFitAGraphAreRefused) {
  const auto of = [](const std::function<void(ModelGraph&)>& change) {
    ModelGraph graph = graph_over(0, {table("user", 3), table("film", 3)});
    graph.layers = {{"out", "sampled_softmax", {"user", "film", "film:ids"}}};
    graph.heads = {{"h", "out"}};
    change(graph);
    return refusal([&] {
      add_id_inputs({table("user", 3), table("film", 3)}, graph);
      LayerGraph(runtime(), graph, {});
    });
  };
  EXPECT_EQ(of([](ModelGraph&) {}), "nothing was refused");
  EXPECT_EQ(of([](ModelGraph& g) { g.layers[0].inputs[2] = "flim:ids"; }),
            "the layer \"out\" takes \"flim:ids\", but no table has the feature \"flim\"; the nearest is \"film\"");
  EXPECT_THAT(of([](ModelGraph& g) {
                g.layers[0] = {"out", "linear", {"user", "film:ids"}};
              }),
              AllOf(HasSubstr("the layer \"out\" of user (3 values), film:ids (1 id)"), HasSubstr("float32")));
  EXPECT_THAT(of([](ModelGraph& g) {
                g.heads.push_back({"i", "film:ids"});
              }),
              HasSubstr("the head \"i\" takes \"film:ids\", which are ids"));
}

// A linear layer over two tables, ranked within each user.
class Ranking : public testing::Test {
 protected:
  Ranking() {
    ModelTrainerOptions o;
    o.tables = {table("user", 2), table("film", 2)};
    o.graph = graph_over(0, o.tables);
    o.graph.layers = {{"top", "linear", {"pooled"}}};
    o.graph.heads = {{"rank", "top", "pairwise_loss", "label", 3, "user"}};
    o.dense_optimizer = {"sgd", R"({"learning_rate": 0.1})"};
    o.parallel.sharded.kernel = "reference";
    o.parallel.sharded.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0};
    o.seed = 1;
    EmbeddingModuleShardingPlan plan;
    for (const char* name : {"user", "film"})
      plan.add(name, {"table_wise", "fused", ParameterSharding::Combine::kConcat, false, {{10, 2, 0, 0, 0}}});
    o.parallel.plan.emplace().modules.emplace_back(kCollectionPath, std::move(plan));
    trainer_ = std::make_unique<ModelTrainer>(runtime(), ProcessGroup::connect(runtime(), {}), std::move(o));
    batch_.dense = Tensor::empty({6, 0});
    batch_.labels = Tensor::from<float>({1, 0, 0, 2, 1, 1});
    batch_.global_size = 6;
    fill({1, 1, 1, 1, 1, 1});
  }
  // Users with 1 or 2 ids.
  void fill(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> all = lengths;
    all.insert(all.end(), 6, 1);
    std::vector<int64_t> ids;
    for (size_t s = 0; s < 6; ++s) ids.insert(ids.end(), static_cast<size_t>(lengths[s]), users_[s]);
    for (int64_t s = 0; s < 6; ++s) ids.push_back(9 - s);
    batch_.sparse = KeyedJaggedTensor::from_lengths_sync({"user", "film"}, Tensor::from(ids), Tensor::from(all));
  }
  const std::vector<int64_t> users_ = {1, 1, 4, 4, 4, 7};
  std::unique_ptr<ModelTrainer> trainer_;
  Batch batch_;
};

TEST_F(Ranking, ComparesSamplesOfOneGroupAlone) {
  std::vector<float> scores;
  trainer_->observe(
      [&](const std::vector<Tensor>& of_heads, const Batch&) { scores = of_heads[0].to_vector<float>(); });
  double first = 0;
  for (int step = 0; step < 20; ++step) {
    trainer_->step(batch_);
    double sum = 0;
    int pairs = 0;
    for (size_t a = 0; a < 6; ++a) {
      for (size_t b = 0; b < 6; ++b) {
        const float* labels = batch_.labels.data<float>();
        if (users_[a] != users_[b] || labels[a] <= labels[b]) continue;
        sum += std::log1p(std::exp(-(double{scores[a]} - scores[b])));
        ++pairs;
      }
    }
    ASSERT_EQ(pairs, 4);
    const double loss = trainer_->take_losses().at(0);
    EXPECT_NEAR(loss, 3 * 6 * sum / pairs, 1e-4) << "of six samples, and the head's weight is 3";
    if (step == 0) first = loss;
    if (step == 19) {
      EXPECT_LT(loss, 0.9 * first);
    }
  }
}

TEST_F(Ranking, NeedsOneIdOfEachSample) {
  fill({1, 2, 1, 1, 1, 1});
  EXPECT_THAT(refusal([&] { trainer_->step(batch_); }),
              HasSubstr("sample 1 of a batch has 2 ids of \"user\", but layers that take its ids need one id for "
                        "each sample"));
  fill({1, 1, 1, 0, 1, 1});
  EXPECT_THAT(refusal([&] { trainer_->step(batch_); }), HasSubstr("sample 3 of a batch has 0 ids of \"user\""));
}

const std::string kRanking = R"(
layer = [{name = "top", type = "mlp", inputs = ["dense", "c0", "c1", "c2"], options = {widths = [8, 1]}}]
head = [{name = "rank", input = "top", loss = "pairwise_loss"}]
)";

class IdJobs : public testing::Test, protected JobFile {
 protected:
  Finished run(const Arguments& more, const std::string& layers = kRanking, int ranks = 0) const {
    write("job.toml", layers + kGraphJob + kGraphTables);
    return train(ranks, more);
  }
  json report(const std::vector<std::string>& sets, int ranks = 1) const {
    succeed(run(settings({"data.pooling=1"}) + settings(sets), kRanking, ranks));
    return JobFile::report();
  }
  // Expects one sentence before samples are read; the data is described by its meta.json.
  void expect_refused(const std::vector<std::string>& sets, const testing::Matcher<std::string>& sentence,
                      const std::string& layers = kRanking) const {
    folder_.write("meta.json", R"({"dense": ["a"], "columns": [{"name": "c0", "rows": 300},
      {"name": "c1", "rows": 50}, {"name": "c2", "rows": 20}, {"name": "user", "rows": 20}]})");
    const Finished done = run(settings({"data.reader=prepared", "data.path=" + file("")}) + settings(sets), layers);
    test::expect_refused(done, sentence);
    EXPECT_EQ(std::count(done.output.begin(), done.output.end(), '\n'), 1) << done.output;
  }
};

TEST_F(IdJobs, RankWithinGroupsOnSeveralRanks) {
  const json whole = report({}), one_group = report({"head.rank.groups=c2", "data.rows=[300, 50, 1]"}),
             no_group = report({"data.rows=[300, 50, 1]"}), grouped = report({"head.rank.groups=c1"}),
             on_ranks = report({"head.rank.groups=c1"}, 2), whole_on_ranks = report({}, 2);
  EXPECT_EQ(one_group.at("losses"), no_group.at("losses")) << "all samples are of one group";
  EXPECT_NE(grouped.at("losses"), whole.at("losses"));
  EXPECT_EQ(on_ranks.at("losses").size(), grouped.at("losses").size());
  EXPECT_NE(on_ranks.at("losses"), whole_on_ranks.at("losses"));
  EXPECT_TRUE(on_ranks.at("test").contains("rmse")) << on_ranks.at("test");
}

TEST_F(IdJobs, GroupsNeedNoTable) {
  const std::string job = R"(
table = [{name = "c0"}]
layer = [{name = "top", type = "linear", inputs = ["dense", "c0"]}]
head = [{name = "rank", input = "top", loss = "pairwise_loss", groups = "c2"}]
)" + kGraphJob;
  succeed(run_tessera({"train", "--config", folder_.write("job.toml", job), "--set", "model.inputs=[\"dense\", \"c0\"]",
                       "--set", "data.pooling=1", "--nproc", "2"},
                      60));
}

// Files to score need no groups.
TEST_F(IdJobs, FilesToScoreNeedNoGroups) {
  const auto rows = [](bool groups) {
    std::string out = groups ? "y,user,film\n" : "y,film\n";
    for (int i = 0; i < 200; ++i) out += str_cat(i % 3 == 0, groups ? str_cat(",u", i % 7) : "", ",f", i % 11, '\n');
    return out;
  };
  const std::string job = folder_.write("job.toml", R"(
job = {device = "cpu"}
data = {reader = "csv", test = "last", batch = 50}
model = {embedding_dim = 4}
column = [
  {name = "y", as = "label"},
  {name = "user", ids = "vocabulary"},
  {name = "film", ids = "vocabulary"}]
table = [
  {name = "film"}]
layer = [
  {name = "top", type = "linear", inputs = ["film"]}]
head = [
  {name = "rank", input = "top", loss = "pairwise_loss", label = "y", groups = "user"}]
)");
  const std::string saved = folder_.file("saved"), model = folder_.file("model");
  const std::string given = "data.path=" + folder_.write("rows.csv", rows(true));
  succeed({"train", "--config", job, "--set", given, "--save", saved});
  succeed({"quantize", "--load", saved, "--save", model, "--weights", "fp32"});
  const std::string scored = succeed({"predict", "--model", model, "--data", folder_.write("ask.csv", rows(false))});
  EXPECT_THAT(scored, HasSubstr("\n199,0,"));
}

TEST_F(IdJobs, AreRefusedInOneSentence) {
  expect_refused(
      {"head.rank.groups=usr"},
      HasSubstr("the head \"rank\" has groups = \"usr\", but the data has no such column of ids; the nearest "
                "is \"user\""));
  expect_refused({"head.rank.groups=user", "head.rank.loss=mse"},
                 HasSubstr("the head \"rank\" has groups = \"user\", but its loss mse takes no ids of groups: leave"));
  expect_refused({"head.rank.groups=user", "head.rank.loss=binary_cross_entropy"},
                 HasSubstr("its loss binary_cross_entropy takes no ids of groups"));
  expect_refused({"head.rank.loss=sampled_softmax"},
                 AllOf(HasSubstr("the loss of head \"rank\" and a label: "),
                       HasSubstr("make it a layer over both towers, and \"product\" the loss of its head")));
  expect_refused({"head.rank.loss=sampled_softmax", "metrics.names=auc"}, HasSubstr("a layer over both towers"));
  expect_refused({"head.rank.loss=pairwise_los"},
                 AllOf(HasSubstr("there is no loss \"pairwise_los\"; the nearest is \"pairwise_loss\" of "
                                 "binary_cross_entropy, "),
                       HasSubstr(", mse, "), Not(HasSubstr(", linear")), Not(HasSubstr("dropout"))));
  expect_refused({"layer.top.inputs=[\"dense\", \"c0\", \"c1\", \"c2\", \"c22:ids\"]"},
                 HasSubstr("the layer \"top\" takes \"c22:ids\", but no table has the feature \"c22\"; the nearest is "
                           "\"c2\""));
  const Finished lists = run({"--set", "head.rank.groups=c1"});  // with two ids in each sample
  EXPECT_EQ(lists.status, 2) << lists.output;
  EXPECT_THAT(lists.output, HasSubstr("sample 0 of a batch has 2 ids of \"c1\""));
}

TEST(TwoTowers, ArePackedWithTheItemsIds) {
  const TestDirectory folder;
  const std::string preset = succeed({"model", "new", "two_tower"});
  EXPECT_THAT(preset, HasSubstr("\"c3:ids\""));
  succeed({"train", "--config", folder.write("job.toml", preset), "--set", "data.rows=[200,50,10,30,50,10]", "--set",
           "data.samples=2000", "--set", "data.test_samples=100", "--set", "job.threads=1", "--save",
           folder.file("saved")});
  succeed(
      run_tessera({"quantize", "--load", folder.file("saved"), "--save", folder.file("model"), "--weights", "fp32"}));
  InferenceModel model = open_packed_model(folder.file("model"));
  for (const char* layer : {"user_tower", "item_tower", "item_q"}) model.graph.heads.push_back({layer, layer, "none"});
  const auto predictor = make_predictor(runtime(), std::move(model));
  constexpr size_t kBatch = 8;
  const std::vector<float> dense(kBatch * 8, 0.25f);
  const std::vector<int32_t> one(kBatch, 1);
  std::vector<int64_t> items = {3, 7, 3, 3, 0, 7, 11, 29}, others;
  for (size_t s = 0; s < kBatch; ++s) others.push_back(static_cast<int64_t>(s));
  std::vector<PredictInput::Feature> features;
  for (const ModelFeature& f : predictor->model().features) {
    const std::vector<int64_t>& ids = f.name == "c3" ? items : others;
    features.push_back({ids, one, {}});
  }
  std::vector<std::vector<float>> values;
  std::vector<std::span<float>> outputs;
  for (const ModelOutput& o : predictor->model().outputs) values.emplace_back(kBatch * static_cast<size_t>(o.width));
  for (std::vector<float>& v : values) outputs.emplace_back(v);
  ASSERT_EQ(values.size(), 5u);  // click, retrieval, and those asked for above
  const auto expect_losses = [&](const std::vector<int64_t>& ids) {
    predictor->predict_outputs({static_cast<int64_t>(kBatch), dense, features}, outputs);
    const Softmax plain({values[2].begin(), values[2].end()}, {values[3].begin(), values[3].end()}, ids, 1);
    const std::vector<double> wanted = plain.losses({values[4].begin(), values[4].end()});
    for (size_t s = 0; s < kBatch; ++s) EXPECT_NEAR(values[1][s], wanted[s], 1e-4) << s;
  };
  expect_losses(items);
  // A request for vectors of users has no items.
  const std::vector<int32_t> none(kBatch, 0);
  for (size_t f = 0; f < features.size(); ++f) {
    if (predictor->model().features[f].name == "c3") features[f] = {{}, none, {}};
  }
  expect_losses(std::vector<int64_t>(kBatch, -1));
}

}  // namespace
}  // namespace tessera::test::id_inputs_test
