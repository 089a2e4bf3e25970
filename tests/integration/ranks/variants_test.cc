// Kinds of batches that the property test of sharding_test.cc leaves out: a different batch size per feature,
// sequences, ids out of range under the policy "ignore". Forward on 1, 2 and 4 ranks of one or two hosts equals the
// unsharded module on each rank's batch. Backward is compared if one rank has everything, and on all ranks for local
// rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "sharded.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"

namespace tessera::test::variants_test {
namespace {

constexpr int64_t kRows = 12, kDim = 8;

std::vector<EmbeddingBagConfig> tables(PoolingType second) {
  std::vector<EmbeddingBagConfig> out;
  for (int t = 0; t < 2; ++t) {
    EmbeddingBagConfig c{.name = "t" + std::to_string(t),
                         .num_embeddings = kRows,
                         .embedding_dim = kDim,
                         .feature_names = {"f" + std::to_string(t)},
                         .pooling = t ? second : PoolingType::kSum};
    out.push_back(std::move(c));
  }
  return out;
}

// f0 has three samples, f1 two; the batch of four uses them through the inverse indices. Rank 1 has run out of samples.
KeyedJaggedTensor variable_batch(int rank) {
  KeyedJaggedTensor::Options o;
  o.keys = {"f0", "f1"};
  if (rank == 1) {
    o.values = o.lengths = Tensor::empty({0}, DType::kInt64);
    o.stride_per_key_per_rank = {{0}, {0}};
    o.inverse_indices = {{"f0", "f1"}, Tensor::empty({2, 0}, DType::kInt64)};
    return KeyedJaggedTensor(std::move(o));
  }
  o.values = Tensor::from<int64_t>({rank, 3, 5, 7, 2, 11, 1});
  o.lengths = Tensor::from<int64_t>({2, 0, 3, 1, 1});
  o.stride_per_key_per_rank = {{3}, {2}};
  o.inverse_indices = {{"f0", "f1"}, Tensor::from<int64_t>({0, 1, 2, 0, 1, 1, 0, 0}).reshape({2, 4})};
  return KeyedJaggedTensor(std::move(o));
}

KeyedJaggedTensor plain_batch(int rank) {
  return KeyedJaggedTensor::from_lengths_sync({"f1", "f0"}, Tensor::from<int64_t>({rank, 3, 5, 7, 2, 11, 1}),
                                              Tensor::from<int32_t>({2, 0, 2, 3}));
}

// Ids 12, -1 and 99 are out of range.
KeyedJaggedTensor dirty_batch(int rank) {
  return KeyedJaggedTensor::from_lengths_sync({"f1", "f0"}, Tensor::from<int64_t>({rank, 12, 5, -1, 2, 99, 1}),
                                              Tensor::from<int32_t>({2, 0, 2, 3}));
}

const OptimizerSpec kAdagrad = {"exact_adagrad", R"({"learning_rate": 0.1, "eps": 0.1})", 0};

Tensor ramp(const std::vector<int64_t>& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i % 7 - 3) / 4;
  return t;
}

using MakeBatch = KeyedJaggedTensor (*)(int);

std::string run_pooled(const RankEnvironment& where, const std::string& type, MakeBatch make, BoundsCheckMode bounds) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
  const auto group = ProcessGroup::connect(runtime, where);
  const auto configs = tables(PoolingType::kMean);
  ShardedModuleOptions options{.optimizer = kAdagrad, .bounds_check = bounds};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options)
                     .shard(configs, plan_of(runtime, configs, topology_of(where), {type}), group);
  CollectionOptions unsharded{.tables = configs, .optimizer = kAdagrad, .bounds_check = bounds};
  EmbeddingBagCollection whole(runtime, unsharded);
  auto mine = sharded.forward(make(where.rank)).wait();
  EmbeddingContext context;
  const KeyedTensor want = whole.forward(make(where.rank), &context);
  std::string out = difference("output", mine.values.values(), want.values());
  const Tensor grad = ramp(want.values().shape());
  sharded.backward(mine, grad);
  if (where.world_size == 1) {
    whole.backward(std::move(context), grad);
    out += compare_weights(sharded, whole, 1e-6);
  }
  group->barrier();
  return out;
}

std::string run_sequence(const RankEnvironment& where, const std::string& type, MakeBatch make,
                         BoundsCheckMode bounds) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
  const auto group = ProcessGroup::connect(runtime, where);
  const auto configs = tables(PoolingType::kSum);
  ShardedModuleOptions options{.optimizer = kAdagrad, .bounds_check = bounds};
  auto sharded = EmbeddingCollectionSharder(runtime, options)
                     .shard(configs, plan_of(runtime, configs, topology_of(where), {type}), group);
  CollectionOptions unsharded{.tables = configs, .optimizer = kAdagrad, .bounds_check = bounds};
  EmbeddingCollection whole(runtime, unsharded);
  auto mine = sharded.forward(make(where.rank)).wait();
  EmbeddingContext context;
  const JaggedTensorDict want = whole.forward(make(where.rank), &context);
  std::string out;
  std::vector<std::pair<std::string, Tensor>> grads;
  std::vector<Tensor> whole_grads;
  for (size_t i = 0; i < want.size(); ++i) {
    if (mine.values[i].first != want[i].first) out += "other keys\n";
    out += difference(want[i].first, mine.values[i].second.values(), want[i].second.values());
    whole_grads.push_back(ramp(want[i].second.values().shape()));
    grads.emplace_back(want[i].first, whole_grads.back());
  }
  sharded.backward(mine, grads);
  if (where.world_size == 1) {
    whole.backward(std::move(context), whole_grads);
    out += compare_weights(sharded, whole, 1e-6);
  }
  group->barrier();
  return out;
}

struct Variant {
  const char* name;
  MakeBatch make;
  BoundsCheckMode bounds;
  bool sequence;
};

using World = std::pair<int, int>;  // ranks, ranks per host

class Variants : public testing::TestWithParam<std::tuple<Variant, std::string, World>> {};

TEST_P(Variants, EqualUnsharded) {
  const Variant& variant = std::get<0>(GetParam());
  const std::string& type = std::get<1>(GetParam());
  const auto& [world, local] = std::get<2>(GetParam());
  const auto run = variant.sequence ? run_sequence : run_pooled;
  const auto out = cli::run_in_ranks(
      world, local, 60, [&](const RankEnvironment& where) { return run(where, type, variant.make, variant.bounds); });
  for (const std::string& text : out) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(
    All, Variants,
    testing::Combine(testing::Values(Variant{"variable_batch", variable_batch, BoundsCheckMode::kFatal, false},
                                     Variant{"ignored_ids", dirty_batch, BoundsCheckMode::kIgnore, false},
                                     Variant{"sequence", plain_batch, BoundsCheckMode::kFatal, true},
                                     Variant{"sequence_ignored_ids", dirty_batch, BoundsCheckMode::kIgnore, true}),
                     testing::Values("table_wise", "row_wise", "column_wise", "data_parallel", "table_row_wise",
                                     "table_column_wise", "grid_shard", "test.hot?columns=true", "test.hot?routed=true",
                                     "test.hot?hot=0&routed=true&columns=true"),
                     testing::Values(World{1, 1}, World{2, 2}, World{4, 4}, World{4, 2})),
    [](const auto& info) {
      std::string type = std::get<1>(info.param);
      std::replace_if(
          type.begin(), type.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
      return std::string(std::get<0>(info.param).name) + "_" + type + "_" +
             std::to_string(std::get<2>(info.param).first) + "_on_" +
             std::to_string(std::get<2>(info.param).first / std::get<2>(info.param).second) + "_hosts";
    });

// Local rows (RankWiring::local_rows), mixed with rows that travel: eight plans,
// batches of changing size, two of them between forward and backward at once, some looked up shard by shard.
class LocalRows : public testing::TestWithParam<std::tuple<World, std::string>> {};

std::vector<EmbeddingBagConfig> local_rows_tables() {
  std::vector<EmbeddingBagConfig> out;
  for (const char* name : {"two", "second", "third", "columns", "blocks", "whole", "mean", "everywhere"}) {
    EmbeddingBagConfig c{
        .name = name, .num_embeddings = kRows, .embedding_dim = kDim, .feature_names = {str_cat("f_", name)}};
    c.pooling = c.name == "mean" ? PoolingType::kMean : PoolingType::kSum;
    out.push_back(std::move(c));
  }
  return out;
}

EmbeddingModuleShardingPlan local_rows_plan(int world) {
  using Combine = ParameterSharding::Combine;
  const int last = world - 1;
  EmbeddingModuleShardingPlan plan;
  const auto add = [&](const char* table, Combine combine, const char* kernel, std::vector<ShardMetadata> shards) {
    plan.add(table, {"by_hand", kernel, combine, false, std::move(shards)});
  };
  add("two", Combine::kSum, "fused", {{7, 8, 0, 0, last}, {5, 8, 7, 0, 0}});
  add("second", Combine::kSum, "fused", {{4, 8, 0, 0, last}, {0, 8, 4, 0, 0}, {4, 8, 4, 0, 0}, {4, 8, 8, 0, last}});
  add("third", Combine::kSum, "fused", {{4, 8, 0, 0, last}, {4, 8, 4, 0, last}, {4, 8, 8, 0, 0}});
  add("columns", Combine::kConcat, "dense", {{12, 3, 0, 0, 0}, {12, 5, 0, 3, 0}});
  add("blocks", Combine::kHostSum, "fused",
      {{5, 3, 0, 0, 0}, {7, 3, 5, 0, last}, {5, 5, 0, 3, last}, {7, 5, 5, 3, last}});
  add("whole", Combine::kConcat, "fused", {{12, 8, 0, 0, last}});
  add("mean", Combine::kSum, "fused", {{6, 8, 0, 0, 0}, {6, 8, 6, 0, last}});
  std::vector<ShardMetadata> everywhere;
  for (int rank = 0; rank < world; ++rank) everywhere.push_back({12, 8, 0, 0, rank});
  add("everywhere", Combine::kDataParallel, "dense", std::move(everywhere));
  return plan;
}

// The batches of these ranks, in sequence.
KeyedJaggedTensor local_rows_batch(const std::vector<EmbeddingBagConfig>& tables, int step, int first, int last) {
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  for (size_t f = 0; f < tables.size(); ++f) {
    keys.push_back(tables[f].feature_names[0]);
    for (int rank = first; rank < last; ++rank) {
      const int64_t bags = std::array{3, 0, 20, 1, 7}[(step + 2 * rank) % 5];
      for (int64_t b = 0; b < bags; ++b) {
        lengths.push_back(static_cast<int32_t>((b + b / 4 + step + static_cast<int>(f)) % 4));
        for (int64_t i = 0; i < lengths.back(); ++i) ids.push_back((b * 3 + i * i * 5 + rank + step) % kRows);
      }
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths));
}

std::string run_staying(const RankEnvironment& where, const std::string& kernel) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto configs = local_rows_tables();
  auto sharded = EmbeddingBagCollectionSharder(runtime, {.kernel = kernel, .optimizer = kAdagrad})
                     .shard(configs, local_rows_plan(where.world_size), group);
  sharded.sample_shards(2);
  EmbeddingBagCollection whole(runtime, {.tables = configs, .optimizer = kAdagrad});
  std::string out;
  struct Alive {
    ShardedEmbeddingBagCollection::Output mine;
    EmbeddingContext context;
    Tensor grad, whole_grad;
  };
  for (int step = 0; step < 6; step += 2) {
    std::vector<Alive> alive;
    for (const int at : {step, step + 1}) {
      Alive a{.mine = sharded.forward(local_rows_batch(configs, at, where.rank, where.rank + 1)).wait()};
      const Tensor want = whole.forward(local_rows_batch(configs, at, 0, where.world_size), &a.context).values();
      const int64_t before = local_rows_batch(configs, at, 0, where.rank).stride();
      const Tensor& got = a.mine.values.values();
      out += difference(str_cat("output of step ", at), got, want.narrow(before, got.size(0)));
      a.whole_grad = ramp(want.shape());
      a.grad = a.whole_grad.narrow(before, got.size(0)).clone();
      for (float& g : a.whole_grad.span<float>()) g /= static_cast<float>(where.world_size);
      alive.push_back(std::move(a));
    }
    const auto same = sharded.forward(local_rows_batch(configs, step, 0, 1), false, false).wait();
    const Tensor& rows = same.values.values();
    const std::string bits(static_cast<const char*>(rows.raw()), static_cast<size_t>(rows.bytes()));
    for (const std::string& theirs : group->all_gather_text(bits, "output")) {
      if (theirs != bits) out += "ranks get other bits for one batch\n";
    }
    for (Alive& a : alive) {
      sharded.backward(a.mine, a.grad);
      whole.backward(std::move(a.context), a.whole_grad);
      out += compare_weights(sharded, whole, 1e-6);
    }
  }
  if (sharded.sampled_steps() == 0) out += "no step was sampled\n";
  group->barrier();
  return out;
}

TEST_P(LocalRows, EqualUnsharded) {
  const auto& [ranks, kernel] = GetParam();
  const auto out = cli::run_in_ranks(ranks.first, ranks.second, 60, [&, kernel = kernel](const RankEnvironment& where) {
    return run_staying(where, kernel);
  });
  for (const std::string& text : out) EXPECT_EQ(text, "");
}

INSTANTIATE_TEST_SUITE_P(All, LocalRows,
                         testing::Combine(testing::Values(World{1, 1}, World{2, 2}, World{4, 4}, World{4, 2}),
                                          testing::Values("auto", "reference")));

}  // namespace
}  // namespace tessera::test::variants_test
