// Needs the kernel and optimizer plugins of the build (TESSERA_BUILD_DIR), and skips without.
#include "tessera/embedding_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/test_refusal.h"
#include "modules/embedding_fused_optimizer.h"

namespace tessera {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

EmbeddingBagConfig table(const char* name, int64_t rows, int64_t dim, std::vector<std::string> features,
                         PoolingType pooling = PoolingType::kSum) {
  return {.name = name,
          .num_embeddings = rows,
          .embedding_dim = dim,
          .feature_names = std::move(features),
          .pooling = pooling};
}

// a: {0, 1}, {2}; b: {3}, {}
KeyedJaggedTensor batch(const std::vector<int64_t>& ids = {0, 1, 2, 3}, Tensor weights = {}) {
  return KeyedJaggedTensor::from_lengths_sync({"a", "b"}, Tensor::from(ids), Tensor::from<int64_t>({2, 1, 1, 0}),
                                              std::move(weights));
}

class EmbeddingModulesTest : public testing::Test {
 protected:
  void SetUp() override {
    RuntimeOptions options;
    if (const char* build = std::getenv("TESSERA_BUILD_DIR")) {
      options.plugin_path = {std::string(build) + "/lib/tessera/plugins-1"};
    }
    options.default_path = false;
    runtime_ = std::make_unique<Runtime>(std::move(options));
    if (!runtime_->has(TSR_KERNEL_KIND, "reference") || !runtime_->has(TSR_OPTIMIZER_KIND, "exact_sgd")) {
      GTEST_SKIP() << "the reference kernel and the optimizers were not built";
    }
  }
  CollectionOptions two_tables(PoolingType pooling = PoolingType::kSum) const {
    CollectionOptions o;
    o.kernel = "reference";
    o.tables = {table("t1", 4, 2, {"a"}, pooling), table("t2", 5, 4, {"b"}, pooling)};
    return o;
  }
  std::vector<float> row(const EmbeddingTables& m, const char* name, int64_t r) const {
    return m.weight(name).narrow(r, 1).to_vector<float>();
  }
  std::unique_ptr<Runtime> runtime_;
};

Tensor ones(const std::vector<int64_t>& shape) {
  Tensor t = Tensor::empty(shape);
  t.fill(1);
  return t;
}

OptimizerSpec spec(const char* name, const char* options = R"({"learning_rate": 0.5})") {
  return {.name = name, .options = options};
}

TEST_F(EmbeddingModulesTest, SeveralContextsLive) {
  EmbeddingBagCollection m(*runtime_, two_tables());
  EmbeddingContext first, second;
  (void)m.forward(batch(), &first);
  (void)m.forward(batch({3, 3, 3, 0}), &second);
  const auto g1 = m.backward(std::move(first), ones({2, 6}));
  const auto g2 = m.backward(std::move(second), ones({2, 6}));
  EXPECT_THAT(g1.table("t1").rows.rows.to_vector<int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(g2.table("t1").rows.rows.to_vector<int64_t>(), ElementsAre(3));
  EXPECT_THAT(g2.table("t1").rows.values.to_vector<float>(), Each(3.0f));
  EXPECT_THROW((void)m.backward(EmbeddingContext(), ones({2, 6})), Error);
}

TEST_F(EmbeddingModulesTest, FusedEqualsUnfused) {
  for (const char* name : {"exact_sgd", "exact_adagrad", "exact_rowwise_adagrad", "adam"}) {
    CollectionOptions options = two_tables(PoolingType::kMean);
    options.optimizer = spec(name);
    EmbeddingBagCollection fused(*runtime_, options);
    options.compute_kernel = "dense";
    EmbeddingBagCollection unfused(*runtime_, options);
    for (int step = 0; step < 3; ++step) {
      EmbeddingContext a, b;
      (void)fused.forward(batch(), &a);
      (void)unfused.forward(batch(), &b);
      EXPECT_TRUE(fused.backward(std::move(a), ones({2, 6})).tables.empty());
      unfused.apply(unfused.backward(std::move(b), ones({2, 6})).tables);
    }
    for (const char* t : {"t1", "t2"}) {
      EXPECT_THAT(fused.weight(t).to_vector<float>(), Pointwise(FloatNear(1e-6f), unfused.weight(t).to_vector<float>()))
          << name;
    }
  }
}

TEST_F(EmbeddingModulesTest, DroppedIdsCountInMean) {
  CollectionOptions options = two_tables(PoolingType::kMean);
  options.bounds_check = BoundsCheckMode::kWarning;
  EmbeddingBagCollection m(*runtime_, options);
  m.set_weight("t1", ones({4, 2}));
  EmbeddingContext context;
  const KeyedTensor out = m.forward(batch({0, 77, 2, 3}), &context);
  EXPECT_THAT(out["a"].to_vector<float>(), ElementsAre(0.5f, 0.5f, 1.0f, 1.0f));
  EXPECT_EQ(m.bad_ids("t1"), 1);
  EXPECT_EQ(m.bad_ids("t2"), 0);
  const auto g = m.backward(std::move(context), ones({2, 6}));
  EXPECT_THAT(g.table("t1").rows.rows.to_vector<int64_t>(), ElementsAre(0, 2));
  EXPECT_THAT(g.table("t1").rows.values.to_vector<float>(), ElementsAre(0.5f, 0.5f, 1.0f, 1.0f));
}

TEST_F(EmbeddingModulesTest, DroppedIdsKeepTheirRowInSequences) {
  CollectionOptions options;
  options.kernel = "reference";
  options.bounds_check = BoundsCheckMode::kIgnore;
  options.tables = {table("t1", 4, 2, {"a"}, PoolingType::kNone), table("t2", 5, 2, {"b"}, PoolingType::kNone)};
  EmbeddingCollection m(*runtime_, options);
  m.set_weight("t1", ones({4, 2}));
  EmbeddingContext context;
  const JaggedTensorDict out = m.forward(batch({0, -3, 2, 3}), &context);
  EXPECT_THAT(out[0].second.values().to_vector<float>(), ElementsAre(1, 1, 0, 0, 1, 1));
  EXPECT_THAT(out[0].second.lengths().to_vector<int64_t>(), ElementsAre(2, 1));
  const auto g = m.backward(std::move(context), {ones({3, 2}), Tensor()});
  EXPECT_THAT(g.table("t1").rows.rows.to_vector<int64_t>(), ElementsAre(0, 2));
  EXPECT_THAT(g.table("t2").rows.values.to_vector<float>(), Each(0.0f));
}

TEST_F(EmbeddingModulesTest, FatalLeavesEverythingAsItWas) {
  CollectionOptions options = two_tables();
  options.optimizer = spec("exact_sgd");
  EmbeddingBagCollection m(*runtime_, options);
  const auto before = m.weight("t1").to_vector<float>();
  EmbeddingContext context;
  EXPECT_THAT(test::refusal(Code::kOutOfRange,
                            [&] {
                              (void)m.forward(batch({0, 1, 2, 5}), &context);
                            }),
              HasSubstr("\"b\", sample 0: id 5"));
  EXPECT_FALSE(context.defined());
  EXPECT_EQ(m.weight("t1").to_vector<float>(), before);
}

TEST_F(EmbeddingModulesTest, SharedWeightedFeatureAddsGradients) {
  CollectionOptions options;
  options.kernel = "reference";
  options.is_weighted = true;
  options.tables = {table("t1", 4, 2, {"a"}), table("t2", 4, 2, {"a", "b"})};
  EmbeddingBagCollection m(*runtime_, options);
  m.set_weight("t1", ones({4, 2}));
  m.set_weight("t2", ones({4, 2}));
  EXPECT_THAT(m.embedding_names(), ElementsAre("a@t1", "a@t2", "b"));
  EmbeddingContext context;
  (void)m.forward(batch({0, 1, 2, 3}, Tensor::from<float>({1, 2, 3, 4})), &context);
  const auto g = m.backward(std::move(context), ones({2, 6}));
  EXPECT_THAT(g.per_sample_weights.to_vector<float>(), ElementsAre(4, 4, 4, 2));
  EXPECT_THROW((void)m.forward(batch()), Error);
}

TEST_F(EmbeddingModulesTest, OptimizersPerTableMoveRowsAndStates) {
  EmbeddingBagCollection m(*runtime_, two_tables());
  const auto t1 = m.weight("t1").to_vector<float>();
  m.apply_optimizer_in_backward(spec("exact_adagrad"), {"t1"});
  EXPECT_EQ(m.weight("t1").to_vector<float>(), t1);
  EmbeddingContext context, stale;
  (void)m.forward(batch(), &context);
  const auto g = m.backward(std::move(context), ones({2, 6}));
  ASSERT_EQ(g.tables.size(), 1u);
  EXPECT_EQ(g.tables[0].table, "t2");
  ParameterList found = in_backward_optimizer_filter(m.named_parameters(), true);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]->name, "embedding_bags.t1.weight");

  (void)m.forward(batch(), &stale);
  const auto state = m.fused_optimizer()->state();
  ASSERT_EQ(state.size(), 1u);
  const auto momentum = state[0].second.at(0).second.to_vector<float>();
  EXPECT_EQ(momentum[0], 1.0f);
  m.apply_optimizer_in_backward(spec("exact_adagrad"), {"t2"});  // now both in one instance
  const auto moved = m.fused_optimizer()->state();
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(moved[0].second.at(0).first, "t1.momentum1");
  EXPECT_EQ(moved[0].second.at(0).second.to_vector<float>(), momentum);
  EXPECT_THROW((void)m.backward(std::move(stale), ones({2, 6})), Error);
  EXPECT_THROW(m.apply_optimizer_in_backward(spec("exact_sgd"), {"t9"}), Error);
  EXPECT_THROW(m.apply_optimizer_in_backward(spec("no_such"), {}), Error);
}

TEST_F(EmbeddingModulesTest, FusedOptimizerLoadsItsState) {
  CollectionOptions options = two_tables();
  options.optimizer = spec("exact_adagrad");
  EmbeddingBagCollection trained(*runtime_, options), fresh(*runtime_, options);
  EmbeddingContext context;
  (void)trained.forward(batch(), &context);
  (void)trained.backward(std::move(context), ones({2, 6}));
  const auto weight = fresh.weight("t2").to_vector<float>();
  fresh.fused_optimizer()->load_state_dict(trained.fused_optimizer()->state_dict());
  EXPECT_EQ(fresh.fused_optimizer()->state()[1].second.at(0).second.to_vector<float>(),
            trained.fused_optimizer()->state()[1].second.at(0).second.to_vector<float>());
  EXPECT_EQ(fresh.weight("t2").to_vector<float>(), weight);
  fresh.fused_optimizer()->set_learning_rate(0.25);
  EXPECT_EQ(fresh.place("t1").lookup->learning_rate(), 0.25);
}

TEST_F(EmbeddingModulesTest, NoneHandsGradientsOut) {
  CollectionOptions options = two_tables();
  options.optimizer = spec("none", "{}");
  EmbeddingBagCollection m(*runtime_, options);
  EmbeddingContext context;
  (void)m.forward(batch(), &context);
  EXPECT_EQ(m.backward(std::move(context), ones({2, 6})).tables.size(), 2u);
}

TEST_F(EmbeddingModulesTest, MetaDescribes) {
  CollectionOptions options = two_tables();
  options.device = kMeta;
  options.tables[0].num_embeddings = int64_t{1} << 40;
  EmbeddingBagCollection m(*runtime_, options);
  EXPECT_EQ(m.named_parameters()[0]->value.shape(), (std::vector<int64_t>{int64_t{1} << 40, 2}));
  EXPECT_EQ(m.named_parameters()[0]->value.device(), kMeta);
  m.apply_optimizer_in_backward(spec("exact_sgd"), {"t1"});
  EXPECT_TRUE(m.named_parameters()[0]->in_backward);
  EXPECT_FALSE(m.named_parameters()[1]->in_backward);
  EXPECT_THROW((void)m.forward(batch()), Error);
  EXPECT_THROW((void)m.weight("t1"), Error);
}

TEST_F(EmbeddingModulesTest, DenseInBackwardMovesRowsThatDidNotOccur) {
  EmbeddingBagCollection m(*runtime_, two_tables());
  m.apply_optimizer_in_backward(DenseOptimizerSpec{"adam", R"({"lr": 0.1})"});
  const auto step = [&](const std::vector<int64_t>& ids) {
    EmbeddingContext context;
    (void)m.forward(batch(ids), &context);
    EXPECT_TRUE(m.backward(std::move(context), ones({2, 6})).tables.empty());
  };
  step({0, 0, 0, 0});
  const auto before = row(m, "t1", 0), untouched = row(m, "t1", 3);
  step({1, 1, 1, 1});
  EXPECT_NE(row(m, "t1", 0), before);  // momentum
  EXPECT_EQ(row(m, "t1", 3), untouched);
  EXPECT_EQ(m.in_backward_optimizer("t1")->name, "adam");
}

TEST_F(EmbeddingModulesTest, BagOfMaxAndPadding) {
  EmbeddingOptions o{.num_embeddings = 3,
                     .embedding_dim = 2,
                     .mode = PoolingType::kMax,
                     .padding_idx = -1,
                     .weight = Tensor::from<float>(std::vector<float>{1, 5, 4, 2, 9, 9}).reshape({3, 2}),
                     .kernel = "reference"};
  EmbeddingBag m(*runtime_, o);
  EmbeddingBag::Input input;
  input.indices = Tensor::from<int64_t>({0, 1, 2, 2});
  input.offsets = Tensor::from<int64_t>({0, 3});
  EmbeddingContext context;
  EXPECT_THAT(m.forward(input, &context).to_vector<float>(), ElementsAre(4, 5, 0, 0));
  const Tensor dense = m.backward(std::move(context), ones({2, 2})).tables[0].dense();
  EXPECT_THAT(dense.to_vector<float>(), ElementsAre(0, 1, 1, 0, 0, 0));
}

}  // namespace
}  // namespace tessera
