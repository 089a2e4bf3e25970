// Compares Dice with its formula in double, and tests which activations are refused.
#include <gmock/gmock.h>

#include <cmath>

#include "test_layer.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBatch = 7, kWidth = 3;
constexpr double kEps = 1e-8;

Layer& filled(Layer& dice) {
  dice.with_inputs({{kBatch, kWidth}});
  dice.parameters[0].data = {0.25f, -0.5f, 1.5f};
  return dice;
}

// Zhou et al., 2018: p x + (1 - p) alpha x.
double dice_of(double x, double alpha, double mean, double variance) {
  const double p = 1 / (1 + std::exp(-(x - mean) / std::sqrt(variance + kEps)));
  return p * x + (1 - p) * alpha * x;
}

TEST(Dice, IsItsFormulaOverTheBatch) {
  TestHost host;
  Layer dice(host, "dice", R"({"inputs": [3], "momentum": 0.5})");
  ASSERT_EQ(dice.code, TSR_OK) << dice.error();
  EXPECT_THAT(dice.names, ElementsAre("alpha"));
  filled(dice);
  const std::vector<float>& x = dice.inputs[0].data;
  ASSERT_EQ(dice.forward(), TSR_OK) << dice.error();
  for (int64_t i = 0; i < kWidth; ++i) {
    double mean = 0, variance = 0;
    for (int64_t s = 0; s < kBatch; ++s) mean += double{x[s * kWidth + i]} / kBatch;
    for (int64_t s = 0; s < kBatch; ++s) variance += std::pow(x[s * kWidth + i] - mean, 2) / kBatch;
    for (int64_t s = 0; s < kBatch; ++s) {
      EXPECT_NEAR(dice.output.data[s * kWidth + i],
                  dice_of(x[s * kWidth + i], dice.parameters[0].data[i], mean, variance), 1e-6)
          << s << " " << i;
    }
    EXPECT_NEAR(dice.buffers[0].data[i], mean / 2, 1e-6);
    EXPECT_NEAR(dice.buffers[1].data[i], 0.5 + variance / 2 * kBatch / (kBatch - 1), 1e-6);
  }
}

TEST(Dice, EvaluatesWithRunningStatistics) {
  TestHost host;
  Layer dice(host, "dice", R"({"inputs": [3]})");
  filled(dice);
  dice.trains = false;
  dice.buffers[0].data = {0.5f, -1, 0.125f};
  dice.buffers[1].data = {4, 0.25f, 1};
  ASSERT_EQ(dice.forward(), TSR_OK) << dice.error();
  for (int64_t s = 0; s < kBatch; ++s) {
    for (int64_t i = 0; i < kWidth; ++i) {
      EXPECT_NEAR(dice.output.data[s * kWidth + i],
                  dice_of(dice.inputs[0].data[s * kWidth + i], dice.parameters[0].data[i], dice.buffers[0].data[i],
                          dice.buffers[1].data[i]),
                  1e-6);
    }
  }
  EXPECT_EQ(dice.buffers[2].counts[0], 0) << "no batch was looked at";
}

// Compares with finite differences of the formula in double, in which mean and variance depend on x.
TEST(Dice, HasTheGradientsOfTheFormula) {
  TestHost host;
  Layer dice(host, "dice", R"({"inputs": [3]})");
  filled(dice);
  dice.step();
  std::vector<double> x(dice.inputs[0].data.begin(), dice.inputs[0].data.end()),
      alpha(dice.parameters[0].data.begin(), dice.parameters[0].data.end());
  const auto objective_of = [&] {
    double sum = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      double mean = 0, variance = 0;
      for (int64_t s = 0; s < kBatch; ++s) mean += x[s * kWidth + i] / kBatch;
      for (int64_t s = 0; s < kBatch; ++s) variance += std::pow(x[s * kWidth + i] - mean, 2) / kBatch;
      for (int64_t s = 0; s < kBatch; ++s)
        sum += dice.grad_output.data[s * kWidth + i] * dice_of(x[s * kWidth + i], alpha[i], mean, variance);
    }
    return sum;
  };
  const auto difference = [&](double& at) {
    constexpr double kStep = 1e-6;
    const double before = at;
    at = before + kStep;
    const double above = objective_of();
    at = before - kStep;
    const double below = objective_of();
    at = before;
    return (above - below) / (2 * kStep);
  };
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(dice.grad_inputs[0].data[i], difference(x[i]), 5e-6) << i;
  for (size_t i = 0; i < alpha.size(); ++i)
    EXPECT_NEAR(dice.grad_parameters[0].data[i], difference(alpha[i]), 5e-6) << i;
}

TEST(Dice, IsAnActivationOfTheMlpThatSumsOverRanks) {
  TestHost host;
  Layer mlp(host, "mlp_batch_norm", R"({"inputs": [3], "widths": [4, 1], "norm": "none", "activation": "dice"})");
  ASSERT_EQ(mlp.code, TSR_OK) << mlp.error();
  EXPECT_THAT(mlp.names, ElementsAre("0.weight", "0.bias", "0.activation.alpha", "1.weight", "1.bias"));
  mlp.with_inputs({{6, 3}});
  check_all_gradients(mlp);
}

TEST(Activations, ThatDoNotFitAreRefusedWithTheNearestName) {
  TestHost host;
  const std::tuple<const char*, const char*, const char*> all[] = {
      {"activation", R"({"inputs": [2], "kind": "mihs"})",
       "there is no activation \"mihs\"; the nearest is \"mish\" of"},
      {"mlp", R"({"inputs": [2], "widths": [3, 1], "activation": "dise"})", "the nearest is \"dice\" of none, relu"},
      {"mlp", R"({"inputs": [2], "widths": [3, 1], "activation": "dice"})",
       "dice adds up over the ranks, which mlp does not: use the layer \"mlp_batch_norm\", with norm = \"none\""},
      {"experts", R"({"inputs": [2], "widths": [3, 1], "activation": "dice"})", "which experts does not"},
      {"experts", R"({"inputs": [2], "widths": [3, 1], "norm": "batch"})", "batch norm adds up over the ranks"},
      {"activation", R"({"inputs": [2], "kind": "dice"})", "use the layer \"dice\""},
      {"dice", R"({"inputs": [2], "momentum": 0})", "must be above 0 and not above 1, not 0"},
      {"dice", R"({"inputs": [2], "eps": -1})", "option \"eps\" must be above 0"}};
  for (const auto& [id, options, text] : all) {
    const Layer layer(host, id, options);
    EXPECT_EQ(layer.code, TSR_INVALID_ARGUMENT) << id << options;
    EXPECT_THAT(layer.error(), HasSubstr(text));
  }
}

}  // namespace
