// Compares outputs of sharded collections with those of one rank: the ids of sequences with need_indices, and float16.
#include <gtest/gtest.h>

#include <cmath>

#include "sharded.h"
#include "spawn.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"
#include "tessera/sharded_modules.h"

namespace tessera::test::sharded_outputs_test {
namespace {

constexpr int kWorld = 2;

KeyedJaggedTensor batch_of(int rank) {
  return KeyedJaggedTensor::from_lengths_sync({"a", "b"}, Tensor::from<int64_t>({rank, 3, 9, 3, 8 + rank, 0, 5}),
                                              Tensor::from<int32_t>({2, 0, 2, 1, 1, 1}));
}

// For example "a: 0 3 9 3 of 2 0 2; ": ids and lengths.
std::string indices_of(const JaggedTensor& jagged, const std::string& name) {
  std::string out = name + ":";
  for (const int64_t id : jagged.weights().to_vector<int64_t>()) out += str_cat(" ", id);
  out += " of";
  for (const int32_t n : jagged.lengths().to_vector<int32_t>()) out += str_cat(" ", n);
  return out + "; ";
}

class NeedIndices : public testing::TestWithParam<const char*> {};

TEST_P(NeedIndices, OfShardedTablesAreThoseOfTheBatch) {
  const auto said = cli::run_in_ranks(kWorld, kWorld, 60, [](const RankEnvironment& where) {
    const Runtime runtime({.threads = 1});
    const auto group = ProcessGroup::connect(runtime, where);
    CollectionOptions collection;
    EmbeddingModuleShardingPlan plan;
    for (const char* name : {"a", "b"}) {
      EmbeddingBagConfig table{.name = name, .num_embeddings = 10, .embedding_dim = 8, .feature_names = {name}};
      plan.add(name, make_sharding(runtime, table, {.sharding_type = GetParam(), .min_partition = 4},
                                   Topology::of(kWorld, kWorld, "cpu")));
      collection.tables.push_back(std::move(table));
    }
    collection.need_indices = true;
    collection.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0};
    collection.device = kMeta;
    const EmbeddingCollection described(runtime, collection);
    collection.device = kCpu;
    EmbeddingCollection alone(runtime, collection);
    DistributedModelParallelOptions options;
    options.plan.emplace();
    options.plan->world_size = options.plan->local_world_size = kWorld;
    options.plan->modules = {{"sequences", plan}};
    options.sharded.optimizer = collection.optimizer;
    DistributedModelParallel parallel(runtime, {{}, {{"sequences", &described}}, {}}, group, std::move(options));
    const KeyedJaggedTensor batch = batch_of(where.rank);
    const auto output = parallel.collection("sequences").forward(batch).wait();
    std::string sharded, whole;
    for (const auto& [name, jagged] : output.values) sharded += indices_of(jagged, name);
    const JaggedTensorDict unsharded = alone.forward(batch);
    for (const auto& [name, jagged] : unsharded) whole += indices_of(jagged, name);
    group->barrier();
    return sharded == whole ? sharded : str_cat(sharded, "but alone ", whole);
  });
  EXPECT_EQ(said[0], "a: 0 3 9 3 of 2 0 2; b: 8 0 5 of 1 1 1; ");
  EXPECT_EQ(said[1], "a: 1 3 9 3 of 2 0 2; b: 9 0 5 of 1 1 1; ");
}
INSTANTIATE_TEST_SUITE_P(Types, NeedIndices, testing::Values("table_wise", "row_wise", "column_wise", "data_parallel"));

// Bags and sequences of float16 tables; on one rank the outputs are float16.
TEST(HalfTables, OutputsOfShardedOnesAreHalves) {
  const auto said = cli::run_in_ranks(kWorld, kWorld, 60, [](const RankEnvironment& where) {
    const Runtime runtime({.threads = 1});
    const auto group = ProcessGroup::connect(runtime, where);
    std::string wrong;
    for (const char* type : {"table_wise", "row_wise", "column_wise", "data_parallel"}) {
      EmbeddingBagConfig table{.name = "a",
                               .num_embeddings = 10,
                               .embedding_dim = 8,
                               .feature_names = {"a", "b"},
                               .data_type = DType::kFloat16,
                               .init_range = 0.3};
      const auto tables = validated({table});
      const auto plan = plan_of(runtime, tables, Topology::of(kWorld, kWorld, "cpu"), {type});
      const OptimizerSpec sgd{"exact_sgd", R"({"learning_rate": 0.1})", 0};
      auto bags = EmbeddingBagCollectionSharder(runtime, {.optimizer = sgd, .seed = 3}).shard(tables, plan, group);
      auto rows = EmbeddingCollectionSharder(runtime, {.optimizer = sgd, .seed = 3}).shard(tables, plan, group);
      EmbeddingBagCollection alone(runtime, {.tables = tables, .optimizer = sgd, .seed = 3});
      const KeyedJaggedTensor batch = batch_of(where.rank);
      const std::vector<float> pooled = bags.forward(batch).wait().values.values().to_vector<float>();
      const std::vector<float> want = alone.forward(batch).values().to_vector<float>();
      const auto is_half = [](float x) { return half_to_float(float_to_half(x)) == x; };
      bool all_zero = true;
      for (size_t i = 0; i < want.size(); ++i) {
        all_zero = all_zero && pooled[i] == 0;
        if (!is_half(pooled[i]) || std::abs(pooled[i] - want[i]) > 1e-3f)
          wrong += str_cat(type, ": ", pooled[i], " and not ", want[i], "\n");
      }
      const auto sequences = rows.forward(batch).wait();
      for (const auto& [name, jagged] : sequences.values) {
        for (const float x : jagged.values().to_vector<float>()) {
          if (!is_half(x)) wrong += str_cat(type, ", sequence: ", x, "\n");
        }
      }
      if (all_zero) wrong += "nothing but zeros\n";
    }
    group->barrier();
    return wrong;
  });
  for (const std::string& wrong : said) EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace tessera::test::sharded_outputs_test
