// The core's loss of a head with its options, and which options and inputs of losses are refused.
#include "train/head_losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "train/test_trainer.h"

namespace tessera {
namespace {

using testing::HasSubstr;

class HeadLossesTest : public testing::Test {
 protected:
  // A model whose head gets its `width` dense values.
  static ModelGraph graph_of(HeadSpec head, int64_t width = 1) {
    ModelGraph graph{.dense_width = width,
                     .inputs = {{"dense", GraphInput::kDense, 0, width}},
                     .layers = {{"same", "concat", {"dense"}}}};
    head.name = "click";
    head.input = "same";
    graph.heads = {std::move(head)};
    return graph;
  }
  static HeadLosses losses_of(const ModelGraph& graph) {
    return {test::runtime(), graph, LayerGraph(test::runtime(), graph, {}), {}};
  }
  static std::string refused(const HeadSpec& head, int64_t width = 1) {
    return test::refusal([&] { (void)losses_of(graph_of(head, width)); }, "nothing was refused");
  }
};

double loss_of(HeadLosses& losses, const std::vector<float>& logits, const std::vector<float>& labels) {
  Batch batch;
  batch.labels = Tensor::from(labels);
  batch.global_size = static_cast<int64_t>(labels.size());
  return losses.train(0, Tensor::from(logits).reshape({batch.global_size, 1}), batch, 1, {});
}

// The expected values are torchvision's sigmoid_focal_loss with alpha = -1 and gamma = 2, computed in Python.
TEST_F(HeadLossesTest, FocalGammaIsTorchvisions) {
  HeadLosses losses = losses_of(graph_of({.focal_gamma = 2}));
  const std::vector<float> logits = {0.4f, -1.5f, 2.2f, -0.3f}, labels = {1, 0, 0, 1};
  const double each[] = {0.0826219, 0.0067028, 1.8681529, 0.2819237};
  for (size_t i = 0; i < logits.size(); ++i) EXPECT_NEAR(loss_of(losses, {logits[i]}, {labels[i]}), each[i], 1e-6);
  EXPECT_NEAR(loss_of(losses, logits, labels), each[0] + each[1] + each[2] + each[3], 1e-6);
}

TEST_F(HeadLossesTest, FocalGradientsByFiniteDifferences) {
  for (const double gamma : {0.5, 2.0}) {
    HeadLosses losses = losses_of(graph_of({.label_smoothing = 0.1, .focal_gamma = gamma}));
    for (const float label : {0.0f, 0.3f, 1.0f}) {
      for (const float x : {-30.0f, -2.0f, 0.0f, 0.7f, 40.0f}) {
        constexpr float kStep = 1.0f / 64;  // exact at all x
        const double up = loss_of(losses, {x + kStep}, {label}), down = loss_of(losses, {x - kStep}, {label});
        loss_of(losses, {x}, {label});
        EXPECT_NEAR(losses.gradients()[0].item(), (up - down) / (2 * kStep), 1e-4) << gamma << " " << label << " " << x;
      }
    }
  }
}

TEST_F(HeadLossesTest, RefusesOptionsWithoutMeaning) {
  EXPECT_THAT(refused({.loss = "mse", .focal_gamma = 2}),
              HasSubstr("has focal_gamma, which is of the loss binary_cross_entropy, not of mse"));
  EXPECT_THAT(refused({.loss_options = R"({"margin": 1})"}),
              HasSubstr("has loss_options, but its loss binary_cross_entropy has none: leave them out"));
  EXPECT_THAT(refused({.loss = "mse", .loss_options = R"({"class_weights": [1, 2]})"}),
              HasSubstr("unknown option \"class_weights\""));
  EXPECT_THAT(refused({.loss = "softmax_cross_entropy", .loss_options = R"({"class_weights": [1, 2]})"}, 3),
              HasSubstr("has 2 numbers, but there are 3 classes"));
  EXPECT_THAT(refused({.loss = "bpr"}), HasSubstr("bpr compares the items of one user: set groups"));
  EXPECT_THAT(refused({.loss = "jrc", .groups = "user"}), HasSubstr("jrc takes a prediction of 2 values"));
  EXPECT_THAT(refused({.loss = "hinge", .groups = "user"}), HasSubstr("its loss hinge takes no ids of groups"));
  EXPECT_THAT(refused({.loss = "concat"}), HasSubstr("\"concat\" is not a loss"));
  EXPECT_THAT(refused({.learn_weight = true}), HasSubstr("it is the only one: leave it out"));
}

TEST_F(HeadLossesTest, LossesWithGroupsAreAmongTheNames) {
  EXPECT_THAT(loss_names(test::runtime()), testing::IsSupersetOf({"binary_cross_entropy", "mse", "hinge", "bpr"}));
}

}  // namespace
}  // namespace tessera
