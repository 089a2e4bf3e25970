// Random tables under random plans, on 1..8 ranks of 1..4 hosts. Outputs, weights and optimizer state after three steps
// equal those of the unsharded module, which gets the batches of all ranks together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "config/test_refusal.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"

namespace tessera::test::sharding_test {
namespace {

struct Case {
  uint64_t seed = 0;
  int world = 1, local = 1;
  bool weighted = false;
  OptimizerSpec optimizer;
  std::vector<EmbeddingBagConfig> tables;
  std::vector<std::string> types;  // per table
  std::vector<std::string> features;
  std::vector<int64_t> batch;  // per rank
};

int64_t pick(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}
template <class T>
const T& pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[pick(random, 0, static_cast<int64_t>(from.size()) - 1)];
}

// acme.stripe is plugins/template: it routes rows instead of dividing them into ranges.
const std::vector<std::string> kAllTypes = {"table_wise",     "row_wise",          "column_wise", "data_parallel",
                                            "table_row_wise", "table_column_wise", "grid_shard",  "acme.stripe"};
// Layouts with several row sets, and routed rows whose columns are also divided: plugins/hot_sharder.cc.
const std::vector<std::string> kHotTypes = {
    "test.hot",         "test.hot?routed=true",         "test.hot?columns=true",
    "test.hot?hot=100", "test.hot?hot=100&routed=true", "test.hot?hot=0&routed=true&columns=true"};

Case make_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  Case c{.seed = seed};
  const std::vector<std::pair<int, int>> worlds = {{1, 1}, {2, 2}, {2, 1}, {3, 3}, {4, 4},
                                                   {4, 2}, {4, 1}, {6, 3}, {8, 2}, {8, 4}};
  std::tie(c.world, c.local) = pick(random, worlds);
  c.weighted = pick(random, 0, 3) == 0;
  const std::vector<std::string> optimizers = {"exact_sgd", "exact_adagrad", "adam", "exact_rowwise_adagrad"};
  const std::string& optimizer = pick(random, optimizers);
  // A large eps keeps gradients that cancel to rounding errors from becoming whole steps.
  c.optimizer = {optimizer,
                 optimizer == "exact_sgd" ? R"({"learning_rate": 0.1})" : R"({"learning_rate": 0.1, "eps": 0.1})", 0};
  for (int f = 0; f < 5; ++f) c.features.push_back("f" + std::to_string(f));
  const int64_t tables = pick(random, 1, 5);
  for (int64_t t = 0; t < tables; ++t) {
    EmbeddingBagConfig table;
    table.name = "t" + std::to_string(t);
    table.num_embeddings = pick(random, 1, 40);
    table.embedding_dim = 4 * pick(random, 1, 4);
    table.pooling = !c.weighted && pick(random, 0, 1) ? PoolingType::kMean : PoolingType::kSum;
    table.feature_names = {c.features[pick(random, 0, 2)]};
    if (pick(random, 0, 3) == 0) table.feature_names.push_back(c.features[pick(random, 3, 4)]);
    c.tables.push_back(table);
    c.types.push_back(pick(random, kAllTypes));
  }
  for (int r = 0; r < c.world; ++r) c.batch.push_back(pick(random, 0, 5));
  return c;
}

// A row-wise optimizer keeps one state per column shard, so such a table trains differently, as in TorchRec.
bool cuts_columns(const ParameterSharding& sharding, const EmbeddingBagConfig& table) {
  return std::any_of(sharding.shards.begin(), sharding.shards.end(),
                     [&](const ShardMetadata& s) { return s.cols != table.embedding_dim; });
}

// Concatenates the batches of ranks [first, last).
KeyedJaggedTensor batch_of(const Case& c, int step, int first, int last) {
  std::vector<int64_t> lengths, ids;
  std::vector<float> weights;
  int64_t stride = 0;
  for (int r = first; r < last; ++r) stride += c.batch[r];
  for (size_t f = 0; f < c.features.size(); ++f) {
    int64_t rows = 1000;
    for (const EmbeddingBagConfig& t : c.tables) {
      if (std::count(t.feature_names.begin(), t.feature_names.end(), c.features[f]))
        rows = std::min(rows, t.num_embeddings);
    }
    for (int r = first; r < last; ++r) {
      std::mt19937_64 random(c.seed * 7919 + static_cast<uint64_t>(step * 1000 + r * 10) + f);
      for (int64_t b = 0; b < c.batch[r]; ++b) {
        lengths.push_back(pick(random, 0, 4));
        for (int64_t i = 0; i < lengths.back(); ++i) {
          ids.push_back(pick(random, 0, rows - 1));
          weights.push_back(static_cast<float>(pick(random, 1, 8)) / 4);
        }
      }
    }
  }
  KeyedJaggedTensor::Options o;
  o.keys = c.features;
  o.values = Tensor::from(ids);
  o.lengths = Tensor::from(lengths);
  o.stride = stride;
  if (c.weighted) o.weights = Tensor::from(weights);
  return KeyedJaggedTensor(std::move(o));
}

Tensor gradient_of(const Case& c, int step, int first, int last, int64_t width) {
  int64_t stride = 0;
  for (int r = first; r < last; ++r) stride += c.batch[r];
  Tensor grad = Tensor::empty({stride, width});
  float* to = grad.data<float>();
  for (int r = first; r < last; ++r) {
    std::mt19937_64 random(c.seed * 104729 + static_cast<uint64_t>(step * 1000 + r));
    for (int64_t i = 0; i < c.batch[r] * width; ++i) *to++ = static_cast<float>(pick(random, -16, 16)) / 16;
  }
  return grad;
}

std::string run_rank(const Case& c, const RankEnvironment& where) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}, .require = {"acme.stripe"}});
  const auto group = ProcessGroup::connect(runtime, where);
  const Topology topology = Topology::of(c.world, c.local, "cpu");
  const auto plan = plan_of(runtime, c.tables, topology, c.types);
  const bool cut = std::any_of(c.tables.begin(), c.tables.end(),
                               [&](const EmbeddingBagConfig& t) { return cuts_columns(plan.at(t.name), t); });
  OptimizerSpec optimizer = c.optimizer;
  if (cut && optimizer.name == "exact_rowwise_adagrad") optimizer.name = "exact_adagrad";
  ShardedModuleOptions options{.optimizer = optimizer, .is_weighted = c.weighted, .seed = c.seed};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options).shard(c.tables, plan, group);
  EmbeddingBagCollection whole(runtime,
                               {.tables = c.tables, .is_weighted = c.weighted, .optimizer = optimizer, .seed = c.seed});
  int64_t before = 0;
  for (int r = 0; r < where.rank; ++r) before += c.batch[r];
  std::string out = compare_weights(sharded, whole, 1e-5, 1e-4);
  for (int step = 0; step < 3; ++step) {
    auto mine = sharded.forward(batch_of(c, step, where.rank, where.rank + 1)).wait();
    const int64_t width = mine.values.values().size(1);
    EmbeddingContext context;
    const KeyedTensor all = whole.forward(batch_of(c, step, 0, c.world), &context);
    if (mine.values.keys() != all.keys()) out += "keys differ\n";
    out += difference(str_cat("output of step ", step), mine.values.values(),
                      all.values().narrow(before, c.batch[where.rank]), 1e-5, 1e-4);
    sharded.backward(mine, gradient_of(c, step, where.rank, where.rank + 1, width));
    Tensor grad = gradient_of(c, step, 0, c.world, width);
    for (float& g : grad.span<float>()) g /= static_cast<float>(c.world);
    whole.backward(std::move(context), grad);
    out += compare_weights(sharded, whole, 1e-5, 1e-4);
  }
  group->barrier();
  return out;
}

// One rank and only sums: lookups write to the output, and updates read from the caller's gradient.
Case make_in_place_case(uint64_t seed) {
  Case c = make_case(seed);
  c.world = c.local = 1;
  c.batch.resize(1);
  for (EmbeddingBagConfig& table : c.tables) table.pooling = PoolingType::kSum;
  return c;
}

Case make_hot_case(uint64_t seed) {
  Case c = make_case(seed);
  std::mt19937_64 random(seed);
  for (std::string& type : c.types) type = pick(random, kHotTypes);
  return c;
}

// Gradients are clamped before a mean divides them.
Case make_bounded_case(uint64_t seed) {
  Case c = make_case(seed);
  c.optimizer.max_gradient = 0.25 / c.world;
  for (EmbeddingBagConfig& table : c.tables) table.pooling = c.weighted ? PoolingType::kSum : PoolingType::kMean;
  return c;
}

void expect_equals_unsharded(const Case& c) {
  std::string description =
      str_cat(c.world, " ranks, ", c.local, " per host, ", c.optimizer.name, c.weighted ? ", weighted" : "");
  for (size_t t = 0; t < c.tables.size(); ++t)
    description += str_cat("; ", c.tables[t].num_embeddings, "x", c.tables[t].embedding_dim, " ", c.types[t]);
  SCOPED_TRACE(description);
  const auto differences =
      cli::run_in_ranks(c.world, c.local, 60, [&](const RankEnvironment& where) { return run_rank(c, where); });
  for (size_t r = 0; r < differences.size(); ++r) EXPECT_EQ(differences[r], "") << "rank " << r;
}

class Sharding : public testing::TestWithParam<uint64_t> {};
TEST_P(Sharding, EqualsUnsharded) { expect_equals_unsharded(make_case(GetParam())); }
TEST_P(Sharding, InPlaceEqualsUnsharded) { expect_equals_unsharded(make_in_place_case(GetParam())); }

TEST_P(Sharding, OfSeveralPartsEqualsUnsharded) { expect_equals_unsharded(make_hot_case(GetParam())); }
TEST_P(Sharding, OfBoundedGradientsEqualsUnsharded) { expect_equals_unsharded(make_bounded_case(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Random, Sharding, testing::Range<uint64_t>(1, 61));
INSTANTIATE_TEST_SUITE_P(Long, Sharding, testing::Range<uint64_t>(1000, 2000));  // scripts/test --full

TEST(ShardedErrors, AnIdThatIsFatalOnOneRankEndsTheStepOnAll) {
  const auto texts = cli::run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    const std::vector<EmbeddingBagConfig> tables = {
        {.name = "film", .num_embeddings = 10, .embedding_dim = 4, .feature_names = {"film"}}};
    const auto plan =
        construct_module_sharding_plan(runtime, tables, {{"film", row_wise()}}, Topology::of(2, 2, "cpu"));
    auto sharded = EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0}})
                       .shard(tables, plan, group);
    const auto batch = [](int64_t id) {
      return KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from<int64_t>({3, id}),
                                                  Tensor::from<int32_t>({1, 1}));
    };
    const std::string text = test::refusal([&] { sharded.forward(batch(where.rank == 1 ? 10 : 4)).wait(); });
    // The group survives: the next batch works.
    auto out = sharded.forward(batch(5)).wait();
    return text + (out.values.values().numel() == 8 ? "; then fine" : "; then broken");
  });
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("film"), std::string::npos) << text;
    EXPECT_NE(text.find("10"), std::string::npos) << text;
    EXPECT_NE(text.find("then fine"), std::string::npos) << text;
  }
}

// After a refused batch, buffers still have data of an earlier one, none of which may be used.
TEST(ShardedErrors, AForwardTakesABatchThatWasTakenInAndTakesItOnce) {
  const Runtime runtime;
  const std::vector<EmbeddingBagConfig> tables = {
      {.name = "film", .num_embeddings = 10, .embedding_dim = 4, .feature_names = {"film"}}};
  const auto plan = construct_module_sharding_plan(runtime, tables, {{"film", row_wise()}}, Topology::of(1, 1, "cpu"));
  const auto batch = [](const std::vector<int64_t>& ids) {
    const std::vector<int32_t> ones(ids.size(), 1);
    return KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from(ids), Tensor::from(ones));
  };
  for (const bool twice : {false, true}) {
    const auto group = ProcessGroup::connect(runtime, RankEnvironment{}, {});
    auto sharded =
        EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
    ShardedInputs inputs(sharded);
    StepHandle place = inputs.reserve();
    inputs.take(place, batch({1, 2, 3, 4, 5}));
    EXPECT_EQ(sharded.forward(place).wait().values.values().size(0), 5);
    if (!twice) {
      EXPECT_THROW(inputs.take(place, batch({10})), Error);
    }
    EXPECT_THAT(test::refusal(Code::kInvalidArgument, [&] { sharded.forward(place).wait(); }),
                testing::HasSubstr("taken in without an error"));
  }
}

TEST(ShardedErrors, RanksWithOtherTablesFindOut) {
  const auto texts = cli::run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    const std::vector<EmbeddingBagConfig> tables = {
        {.name = "film", .num_embeddings = 10 + where.rank, .embedding_dim = 4, .feature_names = {"film"}}};
    const auto plan =
        construct_module_sharding_plan(runtime, tables, {{"film", row_wise()}}, Topology::of(2, 2, "cpu"));
    auto sharded =
        EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
    return test::refusal([&] {
      sharded
          .forward(
              KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from<int64_t>({3}), Tensor::from<int32_t>({1})))
          .wait();
    });
  });
  for (const std::string& text : texts) EXPECT_NE(text.find("other tables"), std::string::npos) << text;
}

}  // namespace
}  // namespace tessera::test::sharding_test
