// Inputs of layers: order, names, and what is no graph.
#include "tessera/layer_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "config/test_refusal.h"

namespace tessera {
namespace {

using testing::ElementsAre;

ModelGraph small() {
  ModelGraph graph;
  graph.dense_width = graph.pooled_width = 4;
  graph.inputs = {{"dense", GraphInput::kDense, 0, 4}, {"user", GraphInput::kPooled, 0, 4}};
  graph.layers = {
      {"top", "mlp", {"cross", "bottom"}}, {"cross", "cross", {"user", "bottom:1"}}, {"bottom", "mlp", {"dense"}}};
  graph.heads = {{"click", "top"}};
  return graph;
}

// The error of the changed graph; "" if there is none.
std::string refusal(const std::function<void(ModelGraph&)>& change,
                    const std::function<void(const ModelGraph&)>& check = check_graph) {
  ModelGraph graph = small();
  change(graph);
  return test::refusal(
      Code::kInvalidArgument, [&] { check(graph); }, "");
}

TEST(GraphWiring, RunsEachLayerBehindThoseThatItTakes) {
  const GraphWiring wiring = wire(small());
  EXPECT_THAT(wiring.order, ElementsAre(2u, 1u, 0u));
  EXPECT_TRUE(wiring.inputs[1][1].of_layer);
  EXPECT_EQ(wiring.inputs[1][1].index, 2u);
  EXPECT_EQ(wiring.inputs[1][1].output, 1u);
  EXPECT_FALSE(wiring.inputs[1][0].of_layer);
  EXPECT_EQ(wiring.heads[0].index, 0u);
}

TEST(GraphWiring, RefusesWhatIsNoGraph) {
  EXPECT_EQ(refusal([](ModelGraph&) {}), "");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[2].inputs = {"top"}; }),
            "the layers form a circle: \"top\" takes \"cross\", which takes \"bottom\", which takes \"top\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[1].inputs = {"cross"}; }),
            "the layers form a circle: \"cross\" takes \"cross\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[0].inputs[0] = "croos"; }),
            "the layer \"top\" takes \"croos\", which is neither an input of the model nor a layer; the nearest is "
            "\"cross\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.heads[0].input = "user:1"; }),
            "the head \"click\" takes \"user:1\", which is neither an input of the model nor a layer; the nearest is "
            "\"user\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[1].name = "top"; }), "two layers are called \"top\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[1].name = "user"; }),
            "the layer \"user\" has the name of an input of the model: give it another name");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.heads[0].input = "cross"; }),
            "the layer \"top\" leads to no head: let a head or another layer take it, or leave it out");
  EXPECT_EQ(
      refusal([](ModelGraph& g) {
        g.inputs.push_back({"botom"});
        g.layers[1].inputs = {"botom"};
        g.layers[0].inputs = {"cross"};
      }),
      "the layer \"bottom\" leads to no head: let a head or another layer take it (\"cross\" takes \"botom\"), or "
      "leave it out");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.heads.clear(); }), "the model has no head, which says what is trained");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.heads.push_back(g.heads[0]); }), "two heads are called \"click\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[0].inputs.clear(); }), "the layer \"top\" takes no inputs");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[0].type.clear(); }), "the layer \"top\" has no type");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers[0].name = "a.b"; }),
            "a layer is called \"a.b\", but its name may have only letters, digits, \"_\" and \"-\"");
  EXPECT_EQ(refusal([](ModelGraph& g) { g.layers.resize(10001, g.layers[0]); }),
            "a model may have 10000 layers, not 10001");
}

TEST(GraphWiring, HeadsOfJobsHaveNamesOfTheirOwn) {
  const auto refused = [](const std::vector<std::string>& names) {
    const auto call_so = [&](ModelGraph& g) {
      g.heads.clear();
      for (const std::string& name : names) g.heads.push_back({name, "top"});
    };
    EXPECT_EQ(refusal(call_so), "") << "a packed model may call them so";
    return refusal(call_so, check_head_names);
  };
  EXPECT_EQ(refused({"click", "long-views_2", "rows", "label1"}), "");
  EXPECT_EQ(refused({"like_label", "click"}), "");
  EXPECT_EQ(refused({"click", "stars.x"}),
            "a head is called \"stars.x\", but its name may have only letters, digits, \"_\" and \"-\"");
  for (const std::string own : {"row", "label"}) {
    EXPECT_EQ(refused({own}),
              "a head is called \"" + own + "\", which is another column of the scores: give it another name");
  }
  const std::string labels =
      "a head is called \"click_label\", which is the column for the labels of the head \"click\": give one of the "
      "two another name";
  EXPECT_EQ(refused({"click", "click_label"}), labels);
  EXPECT_EQ(refused({"click_label", "stars", "click"}), labels);
}

TEST(GraphWiring, NamesTablesAndFeatures) {
  EmbeddingBagConfig user, film;
  user.name = "user";
  user.embedding_dim = 4;
  film.name = "film";
  film.feature_names = {"seen", "film"};
  film.embedding_dim = 8;
  const ModelGraph graph = graph_over(3, {user, film});
  EXPECT_EQ(graph.pooled_width, 20);
  std::vector<std::string> all;
  for (const GraphInput& i : graph.inputs) all.push_back(str_cat(i.name, ' ', i.column, '+', i.width));
  EXPECT_THAT(all, ElementsAre("dense 0+3", "pooled 0+20", "user 0+4", "film 4+16", "seen 4+8"));
  user.name = "pooled";
  EXPECT_THROW(graph_over(3, {user}), Error);
}

}  // namespace
}  // namespace tessera
