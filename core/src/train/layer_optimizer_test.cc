// Tests layers with their own optimizers beside the common one, on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "tessera/abi/module.h"
#include "train/test_job.h"

namespace tessera {
namespace {

using test::runtime;
using testing::HasSubstr;
using Sets = std::vector<std::string>;

class LayerOptimizer : public test::JobTest {
 protected:
  LayerOptimizer() : JobTest(test::kMlpJob) {}
  double score(const Sets& set, const TrainJobOptions& options = {}) const {
    return trained(options, set)->evaluate().metrics["logloss"];
  }
  std::string refused(const Sets& set) const {
    return test::refusal([&] { (void)score(set); }, "nothing was refused");
  }
};

TEST_F(LayerOptimizer, WhatALayerLeavesOpenIsTheCommonOnes) {
  const double common = score({});
  EXPECT_EQ(score({"layer.top.optimizer.learning_rate=0.01"}), common);
  EXPECT_EQ(score({"layer.top.optimizer.name=adam"}), common);
  EXPECT_NE(score({"layer.top.optimizer.learning_rate=0.02"}), common);
  EXPECT_NE(score({"layer.top.optimizer.name=sgd"}), common);
  EXPECT_EQ(score({"layer.top.optimizer.name=sgd"}),
            score({"layer.top.optimizer={ name = \"sgd\", learning_rate = 0.01, momentum = 0 }"}));
}

// PyTorch's names are the same optimizers, whose options count and whose other options are refused.
TEST_F(LayerOptimizer, MayHavePyTorchsName) {
  EXPECT_EQ(score({"dense_optimizer.name=Adam", "dense_optimizer.beta1=0.5"}),
            score({"dense_optimizer.name=adam", "dense_optimizer.beta1=0.5"}));
  EXPECT_NE(score({"dense_optimizer.name=Adam", "dense_optimizer.beta1=0.5"}), score({}));
  EXPECT_THAT(refused({"dense_optimizer.name=Adam", "dense_optimizer.momentum=0.5"}), HasSubstr("has no effect"));
  EXPECT_THAT(refused({"dense_optimizer.name=AdamW"}), HasSubstr("dense_optimizer.weight_decay is 0"));
  EXPECT_THAT(refused({"layer.top.optimizer.name=adamw"}),
              HasSubstr("layer \"top\": adamw differs from adam by its weight decay, but its weight_decay is 0"));
  EXPECT_NE(score({"layer.top.optimizer={ name = \"adamw\", weight_decay = 0.5 }"}), score({}));
}

TEST_F(LayerOptimizer, IsItsLayersAlone) {
  EXPECT_EQ(score({"layer.top.optimizer.learning_rate=0"}), score({"layer.top.trainable=false"}));
  EXPECT_EQ(score({"layer.top.optimizer.learning_rate=0.01", "layer.deep.optimizer.learning_rate=0.01",
                   "dense_optimizer.learning_rate=1"}),
            score({}));
}

TEST_F(LayerOptimizer, IsItsLayersUnderAnyName) {
  const std::string names = R"(layer.top.names={ "*" = "deep.of_all.*" })";
  for (const char* key : {"layer.top.optimizer.learning_rate=0.03", "layer.top.trainable=false"})
    EXPECT_EQ(score({key, names}), score({key}));
  EXPECT_EQ(score({names}), score({}));
}

TEST_F(LayerOptimizer, SchedulesScaleAll) {
  EXPECT_EQ(score({"schedule.dense=[\"constant?factor=0.5\"]", "layer.top.optimizer.learning_rate=0.04"}),
            score({"dense_optimizer.learning_rate=0.005", "layer.top.optimizer.learning_rate=0.02"}));
}

TEST_F(LayerOptimizer, GoesOnFromACheckpoint) {
  const std::string saved = file("saved");
  const Sets set = {"layer.top.optimizer={ name = \"adagrad\", learning_rate = 0.05 }"};
  const double straight = score(set);
  (void)score(set, {.save = saved, .max_steps = 4});
  EXPECT_EQ(score(set, {.load = saved}), straight);
  EXPECT_THROW((void)score({}, {.load = saved}), Error) << "top's states are those of another optimizer";
}

TEST_F(LayerOptimizer, WrongOnesAreRefused) {
  EXPECT_THAT(refused({"layer.top.optimizer.name=adma"}),
              HasSubstr("layer \"top\": there is no dense optimizer \"adma\"; the nearest is \"adam\""));
  EXPECT_THAT(refused({"layer.top.optimizer.momentum=0.9"}),
              HasSubstr("layer \"top\": optimizer \"adam\" has no option \"momentum\"; it has: "));
  EXPECT_THAT(refused({"layer.top.optimizer.learning_rate=-1"}), HasSubstr("layer \"top\": lr must not be negative"));
  EXPECT_THAT(refused({"layer.all.optimizer.learning_rate=1"}),
              HasSubstr("layer \"all\" has no parameters, so its optimizer has no effect"));
  EXPECT_THAT(refused({"layer.top.optimizer.learning_rate=1", "layer.top.trainable=false"}),
              HasSubstr("layer \"top\" has an optimizer and trainable = false: leave one out"));
  EXPECT_THAT(refused({"layer.top.optimizer=3"}), HasSubstr("like { learning_rate = 0.001 }"));
}

}  // namespace
}  // namespace tessera
