// Puts infinities and NaN into every input. The step that they affect is refused with their place, and updates nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "config/test_refusal.h"
#include "tessera/abi/module.h"
#include "tessera/layer_graph.h"
#include "tessera/trainer.h"
#include "train/test_trainer.h"

namespace tessera {
namespace {

using test::runtime;
using testing::HasSubstr;

constexpr float kBroken[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity()};

class Numbers : public testing::TestWithParam<float> {
 protected:
  void SetUp() override {
    if (!runtime().has(TSR_MODULE_KIND, "mlp")) GTEST_SKIP() << "no dense layers are built here";
    ModelTrainerOptions options;
    for (const char* name : {"film", "user"}) {
      EmbeddingBagConfig t{.name = name, .num_embeddings = 5, .embedding_dim = 3, .feature_names = {name}};
      options.tables.push_back(t);
    }
    options.graph =
        dlrm_graph({.dense_inputs = 2, .embedding_dim = 3, .bottom_mlp = {4, 3}, .top_mlp = {4, 1}}, options.tables);
    options.dense_optimizer = {"sgd", R"({"learning_rate": 0.1})"};
    options.parallel.sharded.kernel = "reference";
    options.parallel.sharded.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0};
    options.seed = 1;
    EmbeddingModuleShardingPlan tables;
    for (const char* name : {"film", "user"})
      tables.add(name, {"table_wise", "fused", ParameterSharding::Combine::kConcat, false, {{5, 3, 0, 0, 0}}});
    options.parallel.plan.emplace().modules.emplace_back(kCollectionPath, std::move(tables));
    trainer_.emplace(runtime(), ProcessGroup::connect(runtime(), {}), std::move(options));
    batch_.dense = Tensor::from<float>({0.5f, -1, 2, 0.25f}).reshape({2, 2});
    batch_.labels = Tensor::from<float>({1, 0});
    batch_.sparse = KeyedJaggedTensor::from_lengths_sync({"film", "user"}, Tensor::from<int64_t>({1, 4, 0}),
                                                         Tensor::from<int32_t>({1, 1, 1, 0}));
    batch_.global_size = 2;
    trainer_->step(batch_);
  }
  // Returns all numbers of the model.
  std::vector<float> numbers() {
    std::vector<float> all;
    for (const HeldShard& held : trainer_->embeddings().held_shards()) {
      const std::vector<float> rows = trainer_->embeddings().weight(held).to_vector<float>();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    for (const ParameterPtr& p : trainer_->layers().parameters()) {
      const std::vector<float> values = p->value.to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  // Returns the step's error. The model must stay the same, except for the broken value.
  std::string refusal() {
    const std::vector<float> before = numbers();
    const std::string said = test::refusal(
        Code::kFailedPrecondition, [&] { trainer_->step(batch_); }, "nothing");
    const std::vector<float> after = numbers();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_TRUE(after[i] == before[i] || (std::isnan(after[i]) && std::isnan(before[i]))) << "number " << i;
    return said;
  }

  std::optional<ModelTrainer> trainer_;
  Batch batch_;
};

TEST_P(Numbers, OfDenseInputs) {
  for (int64_t i = 0; i < 4; ++i) {
    const float good = std::exchange(batch_.dense.data<float>()[i], GetParam());
    EXPECT_THAT(refusal(), HasSubstr("the data's dense inputs are not finite")) << i;
    batch_.dense.data<float>()[i] = good;
  }
  trainer_->step(batch_);
}

TEST_P(Numbers, OfWeightsOfSamples) {
  batch_.sample_weights = Tensor::from<float>({1, GetParam()});
  EXPECT_THAT(refusal(), HasSubstr("the data's weights of samples are not finite"));
  batch_.sample_weights = {};
  trainer_->step(batch_);
}

TEST_P(Numbers, OfRows) {
  const HeldShard film = trainer_->embeddings().held_shards()[0];
  Tensor rows = trainer_->embeddings().weight(film);
  rows.data<float>()[4 * 3 + 1] = GetParam();
  trainer_->embeddings().set_weight(film, rows);
  EXPECT_THAT(refusal(), HasSubstr("the lookup of \"film\" gives rows that are not finite"));
}

// NaN gets past every layer. An infinity may end in a ReLU, except in the last layer.
TEST_P(Numbers, OfParameters) {
  int refused = 0;
  for (const ParameterPtr& p : trainer_->layers().parameters()) {
    for (int64_t i = 0; i < p->value.numel(); ++i) {
      if (!std::isnan(GetParam()) && p->name != "over_arch.model.1.bias") continue;
      const float good = std::exchange(p->value.data<float>()[i], GetParam());
      EXPECT_THAT(refusal(), HasSubstr(str_cat("parameter \"", p->name, "\" not finite"))) << i;
      p->value.data<float>()[i] = good;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Broken, Numbers, testing::ValuesIn(kBroken), [](const auto& info) {
  return std::isnan(info.param) ? "no_number" : info.param > 0 ? "infinity" : "minus_infinity";
});

}  // namespace
}  // namespace tessera
