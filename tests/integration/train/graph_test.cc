// A graph of layers: gradients of values that several layers use, parts of pooled rows, several outputs and heads;
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "config/test_refusal.h"
#include "tessera/layer_graph.h"

namespace tessera::test::graph_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const Runtime& runtime() {
  static const Runtime it({.plugin_path = {TESSERA_TEST_PLUGINS}});
  return it;
}

std::vector<EmbeddingBagConfig> tables() {
  EmbeddingBagConfig user, film;
  user.name = "user";
  film.name = "film";
  film.feature_names = {"seen", "wanted"};
  user.num_embeddings = film.num_embeddings = 10;
  user.embedding_dim = film.embedding_dim = 3;
  return {user, film};
}

// A diamond: `a` is used twice, `seen` by two layers, and so are parts of the pooled rows and all of a table. One of
// the two heads is on a second output.
ModelGraph diamond() {
  ModelGraph graph = graph_over(3, tables());
  graph.layers = {{"c", "test.blend", {"a", "b", "dense"}},
                  {"a", "test.blend", {"dense", "user", "seen"}},
                  {"b", "test.blend", {"seen", "a", "wanted"}, R"({"weight": 0.5})"},
                  {"d", "test.blend", {"film"}}};
  graph.heads = {{"sum", "c"}, {"squares", "b:1"}, {"whole", "d"}};
  return graph;
}

Tensor random_matrix(int64_t rows, int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Tensor t = Tensor::empty({rows, columns});
  for (float& v : t.span<float>()) v = normal(random);
  return t;
}

std::string refused_by(const std::function<void()>& body) {
  return test::refusal([&] { body(); }, "");
}

// The sum of all heads' values times fixed factors.
double weighed(const std::vector<Tensor>& heads, const std::vector<Tensor>& factors) {
  double sum = 0;
  for (size_t h = 0; h < factors.size(); ++h) {
    for (int64_t i = 0; i < heads[h].numel(); ++i) sum += heads[h].item(i) * factors[h].item(i);
  }
  return sum;
}

// The slope of value() in x.
double slope(float& x, float step, const std::function<double()>& value) {
  const float before = x;
  x = before + step;
  const double above = value();
  x = before - step;
  const double below = value();
  x = before;
  return (above - below) / (2 * step);
}

// Compares the gradients of rows with slopes of value(), which runs the graph forward.
void expect_sequence_gradients(LayerGraph& graph, const std::vector<DenseInput>& rows,
                               const std::vector<Tensor>& factors, const std::function<double()>& value) {
  value();
  graph.backward(factors);
  std::vector<Tensor> got;
  for (const Tensor& gradient : graph.sequence_gradients()) got.push_back(gradient.clone());
  ASSERT_EQ(got.size(), rows.size());
  for (size_t k = 0; k < rows.size(); ++k) {
    ASSERT_EQ(got[k].shape(), rows[k].values.shape());
    for (int64_t i = 0; i < got[k].numel(); ++i)
      EXPECT_NEAR(got[k].item(i), slope(rows[k].values.data<float>()[i], 1.0f / 128, value), 8e-3)
          << "sequence " << k << ", value " << i;
  }
}

TEST(LayerGraphs, HaveTheGradientsOfDifferences) {
  LayerGraph graph(runtime(), diamond(), {.seed = 3});
  constexpr int64_t kBatch = 4;
  const Tensor dense = random_matrix(kBatch, 3, 1), pooled = random_matrix(kBatch, 9, 2);
  const std::vector<Tensor> factors = {random_matrix(kBatch, 3, 3), random_matrix(kBatch, 1, 4),
                                       random_matrix(kBatch, 6, 5)};
  const auto value = [&] { return weighed(graph.forward(dense, pooled, true), factors); };
  const auto difference = [&](float& x) { return slope(x, 1.0f / 64, value); };
  value();
  const Tensor got = graph.backward(factors).clone();
  ASSERT_EQ(got.shape(), pooled.shape());
  ASSERT_EQ(graph.parameters().size(), 4u);
  EXPECT_EQ(graph.parameters()[0]->name, "c.shares") << "as written, not as run";
  std::vector<std::vector<float>> grads;
  for (const ParameterPtr& p : graph.parameters()) grads.push_back(p->grad.to_vector<float>());
  for (int64_t i = 0; i < pooled.numel(); ++i)
    EXPECT_NEAR(got.item(i), difference(pooled.data<float>()[i]), 2e-3) << "pooled value " << i;
  for (size_t k = 0; k < grads.size(); ++k) {
    for (size_t i = 0; i < grads[k].size(); ++i)
      EXPECT_NEAR(grads[k][i], difference(graph.parameters()[k]->value.span<float>()[i]), 5e-3)
          << graph.parameters()[k]->name << " " << i;
  }
}

// A sequence that two layers use, and one that is pooled to a row.
TEST(LayerGraphs, HaveTheGradientsOfSequences) {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  ModelGraph model = graph_over(2, all);
  EXPECT_THAT(model.sequences, ElementsAre(3, 3));
  EXPECT_EQ(model.pooled_width, 3);
  model.layers = {{"target", "sum_pooling", {"wanted"}},
                  {"interest", "target_attention", {"target", "seen"}, R"({"widths": [4]})"},
                  {"largest", "max_pooling", {"seen"}},
                  {"out", "linear", {"user", "target", "interest", "largest"}}};
  model.heads = {{"h", "out"}};
  LayerGraph graph(runtime(), model, {.seed = 3});
  const Tensor dense = random_matrix(3, 2, 1), pooled = random_matrix(3, 3, 2), factors = random_matrix(3, 1, 5);
  const Tensor seen = random_matrix(5, 3, 3), wanted = random_matrix(3, 3, 4);
  const std::vector<DenseInput> rows = {{seen, Tensor::from(std::vector<int64_t>{0, 2, 2, 5})},
                                        {wanted, Tensor::from(std::vector<int64_t>{0, 1, 2, 3})}};
  expect_sequence_gradients(graph, rows, {factors},
                            [&] { return weighed(graph.forward(dense, pooled, true, rows), {factors}); });
}

// Layers over sequences that other layers give, ids of a sequence, and one sequence that two layers take.
ModelGraph of_sequences() {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  ModelGraph model = graph_over(2, all);
  model.layers = {{"moved", "linear", {"seen"}, R"({"width": 3})"},
                  {"plus", "sum", {"moved", "seen"}},
                  {"ragged", "test.ragged", {"plus", "seen:ids", "wanted"}},
                  {"deep", "mlp", {"ragged:1"}, R"({"widths": [4, 2], "activation": "tanh"})"},
                  {"gated", "gate", {"ragged:0"}},
                  {"one", "sum_pooling", {"deep"}},
                  {"two", "max_pooling", {"gated"}},
                  {"out", "linear", {"user", "one", "two"}}};
  model.heads = {{"h", "out"}};
  add_id_inputs(all, model);
  return model;
}

TEST(LayerGraphs, HaveTheGradientsOfSequencesThatLayersGive) {
  const ModelGraph model = of_sequences();
  ASSERT_EQ(model.ids.size(), 1u);
  EXPECT_EQ(model.ids[0].name, "seen");
  EXPECT_EQ(model.ids[0].sequence, 0);
  LayerGraph graph(runtime(), model, {.seed = 3});
  const Tensor dense = random_matrix(3, 2, 1), pooled = random_matrix(3, 3, 2), factors = random_matrix(3, 1, 5);
  const Tensor seen = random_matrix(5, 3, 3), wanted = random_matrix(4, 3, 4);
  const std::vector<DenseInput> rows = {{seen, Tensor::from(std::vector<int64_t>{0, 2, 2, 5})},
                                        {wanted, Tensor::from(std::vector<int64_t>{0, 1, 2, 4})}};
  std::vector<DenseInput> ids = {{Tensor::from(std::vector<int64_t>{1, 0, 2, 1, 0}).reshape({5, 1}),
                                  Tensor::from(std::vector<int64_t>{0, 2, 2, 5})}};
  const auto value = [&] { return weighed(graph.forward(dense, pooled, true, rows, ids), {factors}); };
  expect_sequence_gradients(graph, rows, {factors}, value);
  ids[0].offsets = Tensor::from(std::vector<int64_t>{0, 2, 3, 5});
  EXPECT_THAT(refused_by([&] { value(); }),
              HasSubstr("a layer takes the ids of \"seen\", but sample 1 of a batch has 1 of them and 0 rows"));
}

// Times come in as many sequences as the rows that they belong to.
TEST(LayerGraphs, NeedTheTimesOfAllRows) {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  const auto refused = [&](const std::vector<std::string>& timed, const std::string& options) {
    return refused_by([&] {
      ModelGraph model = graph_over(2, all);
      model.layers = {{"both", "concat_sequences", {"seen", "wanted"}},
                      {"timed", "time_encoding", timed, options},
                      {"out", "sum_pooling", {"timed"}}};
      model.heads = {{"h", "out"}};
      add_id_inputs(all, model);
      LayerGraph graph(runtime(), model, {.seed = 3});
      const Tensor offsets = Tensor::from(std::vector<int64_t>{0, 2, 3}), rows = random_matrix(3, 3, 4);
      const DenseInput ids(Tensor::from(std::vector<int64_t>{60, 120, 0}).reshape({3, 1}), offsets);
      graph.forward(random_matrix(2, 2, 1), random_matrix(2, 3, 2), true, {{rows, offsets}, {rows, offsets}},
                    std::vector<DenseInput>(model.ids.size(), ids));
    });
  };
  EXPECT_EQ(refused({"both", "seen:ids", "wanted:ids"}, R"({"buckets": 3})"), "");
  EXPECT_THAT(refused({"both", "seen:ids", "wanted:ids"}, R"({"contextual": 1})"),
              HasSubstr("sample 0 has 4 rows, but time_encoding has the times of 5, contextual rows included"));
  EXPECT_THAT(refused({"both"}, "{}"), HasSubstr("time_encoding takes a sequence and the times of its rows"));
}

// Rows are hidden at random in training, a new choice in each step. Outside it, each sample's last row is hidden.
TEST(LayerGraphs, HideRowsThatAModelIsToTell) {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  ModelGraph model = graph_over(2, all);
  model.layers = {{"hidden", "mask_rows", {"seen"}, R"({"rate": 0.3})"}};
  model.heads = {{"rows", "hidden"}, {"masks", "hidden:1"}};
  LayerGraph graph(runtime(), model, {.seed = 3, .sequence_heads = true});
  constexpr int64_t kRows = 2000;
  const Tensor dense = random_matrix(3, 2, 1), pooled = random_matrix(3, 3, 2), seen = random_matrix(kRows, 3, 3);
  const std::vector<DenseInput> given = {{seen, Tensor::from(std::vector<int64_t>{0, 2, 2, kRows})},
                                         {random_matrix(3, 3, 4), Tensor::from(std::vector<int64_t>{0, 1, 2, 3})}};
  const Tensor learnt = graph.parameters()[0]->value;
  const auto masks = [&](bool trains, int64_t step) {
    const std::vector<Tensor>& got = graph.forward(dense, pooled, trains, given, {}, {.step = step});
    const std::vector<float> out = got[1].to_vector<float>();
    for (int64_t i = 0; i < kRows * 3; ++i)
      EXPECT_EQ(got[0].item(i), out[static_cast<size_t>(i / 3)] != 0 ? learnt.item(i % 3) : seen.item(i)) << i;
    return out;
  };
  const std::vector<float> first = masks(true, 1), second = masks(true, 2), last = masks(false, 2);
  EXPECT_NEAR(std::count(first.begin(), first.end(), 1.0F), 0.3 * kRows, 80);
  EXPECT_NE(first, second);
  EXPECT_EQ(masks(true, 1), first);
  EXPECT_EQ(std::count(last.begin(), last.end(), 1.0F), 2);
  EXPECT_EQ(last[1] + last.back(), 2);
}

// Queries of each sample's last rows differ from its keys, and values of another feature have the rows of the keys.
TEST(LayerGraphs, TakeOnlySequencesAsEqualThatMustBe) {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  all[1].feature_names = {"asked", "seen", "wanted"};
  ModelGraph model = graph_over(2, all);
  model.layers = {{"found", "attention", {"asked", "seen", "wanted"}, R"({"last_rows": true})"},
                  {"one", "sum_pooling", {"found"}},
                  {"out", "linear", {"user", "one"}}};
  model.heads = {{"h", "out"}};
  LayerGraph graph(runtime(), model, {.seed = 3});
  const auto with = [&](const std::vector<int64_t>& values) {
    const auto rows = [](const std::vector<int64_t>& offsets) {
      return DenseInput{random_matrix(offsets.back(), 3, 1), Tensor::from(offsets)};
    };
    return refused_by([&] {
      graph.forward(random_matrix(2, 2, 1), random_matrix(2, 3, 2), false,
                    {rows({0, 1, 2}), rows({0, 2, 5}), rows(values)});
    });
  };
  EXPECT_EQ(with({0, 2, 5}), "");
  EXPECT_THAT(with({0, 1, 5}), HasSubstr("takes \"seen\" and \"wanted\" row by row, but sample 0 of a batch has"));
}

// Sequences of two features may have equal lengths, which each batch must show; those of layers cannot.
TEST(LayerGraphs, NameSequencesThatHaveDifferentRows) {
  std::vector<EmbeddingBagConfig> all = tables();
  all[1].pooling = PoolingType::kNone;
  ModelGraph model = graph_over(2, all);
  model.layers = {{"plus", "sum", {"seen", "wanted"}},
                  {"more", "product", {"plus", "wanted"}},
                  {"one", "sum_pooling", {"more"}},
                  {"out", "linear", {"user", "one"}}};
  model.heads = {{"h", "out"}};
  LayerGraph graph(runtime(), model, {.seed = 3});
  const Tensor dense = random_matrix(2, 2, 1), pooled = random_matrix(2, 3, 2), seen = random_matrix(3, 3, 3);
  const auto with = [&](std::vector<int64_t> others) {
    const Tensor offsets = Tensor::from(std::vector<int64_t>{0, 1, 3});
    return refused_by([&] {
      graph.forward(dense, pooled, true, {{seen, offsets}, {seen, Tensor::from(others)}});
      graph.backward({random_matrix(2, 1, 4)});
    });
  };
  EXPECT_EQ(with({0, 1, 3}), "");
  EXPECT_EQ(with({0, 2, 3}),
            "the layer \"plus\" takes \"seen\" and \"wanted\" row by row, but sample 0 of a batch has 1 rows of the "
            "first and 2 of the second: give both as many in every sample");
  EXPECT_EQ(with({0, 1, 3}), "") << "the next batch";
  ModelGraph wrong = of_sequences();
  wrong.layers.push_back({"never", "sum", {"ragged:0", "ragged:1"}});
  wrong.layers.push_back({"last", "sum_pooling", {"never"}});
  wrong.heads.push_back({"i", "last"});
  EXPECT_THAT(
      refused_by([&] { LayerGraph(runtime(), wrong, {}); }),
      testing::AllOf(HasSubstr("the layer \"never\" of ragged:0 (a sequence of 3 values with the rows of \"seen\")"),
                     HasSubstr("ragged:1 (a sequence of 3 values)"), HasSubstr("have different rows")));
  wrong.layers.back() = {"last", "linear", {"never"}};
  wrong.layers[wrong.layers.size() - 2] = {"never", "sum", {"ragged:0", "one"}};
  EXPECT_THAT(refused_by([&] { LayerGraph(runtime(), wrong, {}); }), HasSubstr("pool it first"));
}

TEST(LayerGraphs, AddGradientsUpUntilTheyAreCleared) {
  LayerGraph graph(runtime(), diamond(), {.seed = 3});
  const Tensor dense = random_matrix(2, 3, 1), pooled = random_matrix(2, 9, 2);
  const std::vector<Tensor> factors = {random_matrix(2, 3, 3), random_matrix(2, 1, 4), random_matrix(2, 6, 5)};
  const auto pass = [&] {
    graph.forward(dense, pooled, true);
    return graph.backward(factors).to_vector<float>();
  };
  const std::vector<float> once = pass();
  const float first = graph.parameters()[1]->grad.data<float>()[0];
  EXPECT_EQ(pass(), once) << "nothing of a step before is left in the gradient of the inputs";
  EXPECT_FLOAT_EQ(graph.parameters()[1]->grad.data<float>()[0], 2 * first);
}

TEST(LayerGraphs, GiveZerosWhereNothingTakesTheTables) {
  ModelGraph lonely = graph_over(3, tables());
  lonely.layers = {{"a", "test.blend", {"dense"}}};
  lonely.heads = {{"h", "a:1"}};
  LayerGraph graph(runtime(), lonely, {});
  graph.forward(random_matrix(2, 3, 1), random_matrix(2, 9, 2), true);
  EXPECT_THAT(graph.backward({random_matrix(2, 1, 3)}).to_vector<float>(), testing::Each(0.0f));
}

TEST(LayerGraphs, ShareValuesThatAreGiven) {
  const LayerGraph trained(runtime(), diamond(), {.seed = 3});
  std::map<std::string, Tensor> values;
  for (const ParameterPtr& p : trained.parameters()) values[p->name] = p->value;
  LayerGraph graph(runtime(), diamond(), {.values = &values});
  EXPECT_EQ(graph.parameters()[2]->value.raw(), values.at("b.shares").raw());
  values.erase("b.shares");
  const auto refusal = [&]() -> std::string {
    return test::refusal([&] { const LayerGraph other(runtime(), diamond(), {.values = &values}); });
  };
  EXPECT_THAT(refusal(), HasSubstr("the model has no parameter \"b.shares\""));
  values["b.shares"] = Tensor::zeros({7});
  EXPECT_THAT(refusal(), HasSubstr("parameter \"b.shares\" has another shape than its layer"));
}

TEST(LayerGraphs, NameBothWidthsWhereTheyDoNotFit) {
  const auto refusal = [](const std::function<void(ModelGraph&)>& change) {
    ModelGraph graph = diamond();
    change(graph);
    return test::failure_of([&] { const LayerGraph made(runtime(), graph, {}); });
  };
  EXPECT_EQ(refusal([](ModelGraph&) {}).first, "no error");
  const auto [widths, code] = refusal([](ModelGraph& g) { g.layers[2].inputs[2] = "film"; });
  EXPECT_EQ(code, Code::kInvalidArgument);
  EXPECT_THAT(widths, AllOf(HasSubstr("the layer \"b\" of seen (3 values), a (3 values), film (6 values)"),
                            HasSubstr("inputs of one width, not of 3 and 6")));
  EXPECT_THAT(refusal([](ModelGraph& g) { g.layers[2].options = R"({"wieght": 1})"; }).first,
              AllOf(HasSubstr("\"b\""), HasSubstr("unknown option \"wieght\""), HasSubstr("\"weight\"")));
  EXPECT_THAT(refusal([](ModelGraph& g) { g.layers[2].type = "test.blned"; }).first,
              AllOf(HasSubstr("\"b\""), HasSubstr("test.blned")));
  EXPECT_THAT(refusal([](ModelGraph& g) { g.heads[1].input = "b:2"; }).first,
              HasSubstr("\"b:2\" is an input, but that layer has 2 outputs"));
}

TEST(LayerGraphs, CallParametersAsTheyAreToldTo) {
  ModelGraph named = diamond();
  named.layers[2].names = {{"shares", "over.shares"}};
  const LayerGraph plain(runtime(), diamond(), {.seed = 3}), made(runtime(), named, {.seed = 3});
  EXPECT_EQ(plain.parameters()[2]->name, "b.shares");
  EXPECT_EQ(made.parameters()[2]->name, "over.shares");
  EXPECT_EQ(made.parameters_of(2).at(0)->name, "over.shares");
  EXPECT_EQ(made.parameters()[2]->value.to_vector<float>(), plain.parameters()[2]->value.to_vector<float>());
  named.layers[2].names = {{"shares", made.parameters()[0]->name}};
  EXPECT_EQ(test::refusal([&] { const LayerGraph twice(runtime(), named, {}); }),
            str_cat("the layer \"b\" has a parameter \"", made.parameters()[0]->name, "\", and so has the layer \"",
                    named.layers[0].name, "\": change their names"));
}

TEST(LayerGraphs, OfADlrmHaveTorchRecsNames) {
  const ModelGraph graph = dlrm_graph({.dense_inputs = 5, .bottom_mlp = {7, 3}, .top_mlp = {4, 1}}, tables());
  EXPECT_EQ(graph.pooled_width, 9);
  std::vector<std::string> names;
  const LayerGraph made(runtime(), graph, {.seed = 1});
  for (const ParameterPtr& p : made.parameters()) names.push_back(p->name);
  EXPECT_THAT(names, ElementsAre("dense_arch.model._mlp.0._linear.weight", "dense_arch.model._mlp.0._linear.bias",
                                 "dense_arch.model._mlp.1._linear.weight", "dense_arch.model._mlp.1._linear.bias",
                                 "over_arch.model.0._mlp.0._linear.weight", "over_arch.model.0._mlp.0._linear.bias",
                                 "over_arch.model.1.weight", "over_arch.model.1.bias"));
}

}  // namespace
}  // namespace tessera::test::graph_test
