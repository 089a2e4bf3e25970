// A model with many layers of the dense plugin, trained by the program: same losses on one rank and on two, with batch
// norm over the samples of both, and the same answers afterwards.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "graph_job.h"
#include "job_file.h"
#include "tessera/error.h"
#include "tessera_program.h"

namespace tessera::test::layer_models_test {
namespace {

using nlohmann::json;

const std::string kLayers = R"(
layer = [
  {name = "bottom", type = "mlp_batch_norm", inputs = [
     "dense"], options = {widths = [16, 8], activation = "prelu", final_activation = "relu"}},
  {name = "same_width", type = "projection", inputs = ["c0", "c2"], options = {width = 8}},
  {name = "dots", type = "dot_interaction", inputs = ["bottom", "same_width", "c1"]},
  {name = "pairs", type = "fm", inputs = ["bottom", "same_width", "c1"], options = {dim = 8}},
  {name = "normal", type = "batch_norm", inputs = ["dots", "c0"]},
  {name = "experts", type = "experts", inputs = [
     "normal"], options = {experts = 3, widths = [16, 8], activation = "silu"}},
  {name = "weights", type = "linear", inputs = ["normal"], options = {width = 3}},
  {name = "mixed", type = "mixture", inputs = ["weights", "experts"]},
  {name = "gated", type = "gate", inputs = ["c1", "dense"], options = {scale = 2}},
  {name = "crossed", type = "cross", inputs = [
     "gated", "bottom"], options = {kind = "mixture", layers = 2, experts = 2, rank = 4}},
  {name = "fused", type = "bilinear", inputs = ["mixed", "crossed"], options = {heads = 2}},
  {name = "calm", type = "layer_norm", inputs = ["crossed"]},
  {name = "adaptive", type = "dice", inputs = ["calm"]},
  {name = "wide", type = "linear", inputs = ["adaptive", "c2"]},
  {name = "logit", type = "sum", inputs = ["fused", "pairs", "wide"]}]
head = [{name = "click", input = "logit"}]
)";

TEST(LayersOfModels, TrainToTheSameLossesAndAnswersOnTwoRanks) {
  const JobFile job(kLayers + kGraphJob + kGraphTables);
  const json one = job.trained(1), two = job.trained(2);
  for (const char* layer : {"mlp_batch_norm", "projection", "dot_interaction", "fm", "batch_norm", "experts", "mixture",
                            "gate", "cross", "bilinear", "layer_norm", "dice", "linear", "sum"})
    EXPECT_TRUE(one.at("layers").contains(layer)) << layer;
  ASSERT_EQ(losses_of(one).size(), losses_of(two).size());
  ASSERT_GT(losses_of(one).size(), 30u);
  expect_same_losses(one, two);
  // Evaluation uses the running statistics, which include both ranks' samples.
  EXPECT_NEAR(two.at("test").at("auc").get<double>(), one.at("test").at("auc").get<double>(), 1e-3);
  EXPECT_NEAR(two.at("test").at("logloss").get<double>(), one.at("test").at("logloss").get<double>(), 1e-4);
  EXPECT_GT(one.at("test").at("auc").get<double>(), 0.6);
}

}  // namespace
}  // namespace tessera::test::layer_models_test
