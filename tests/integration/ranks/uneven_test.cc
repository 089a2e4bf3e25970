// Unequal ranks: some run out of batches before the others, and bags of a weighted MEAN are divided by rows.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <numeric>

#include "config/test_refusal.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/embedding_modules.h"

namespace tessera::test::uneven_test {
namespace {

constexpr int64_t kRows = 13, kDim = 8;
const OptimizerSpec kAdagrad = {"exact_adagrad", R"({"learning_rate": 0.1, "eps": 0.1})", 0};

EmbeddingBagConfig table_of(const std::string& type, PoolingType pooling) {
  return {
      .name = type, .num_embeddings = kRows, .embedding_dim = kDim, .feature_names = {"f_" + type}, .pooling = pooling};
}

const std::vector<std::string> kTypes = {"table_wise",     "row_wise",          "column_wise", "data_parallel",
                                         "table_row_wise", "table_column_wise", "grid_shard"};

// A table per sharding type.
std::vector<EmbeddingBagConfig> tables_of(PoolingType pooling, int64_t rows = kRows, int64_t dim = kDim) {
  std::vector<EmbeddingBagConfig> out;
  for (const std::string& type : kTypes) {
    out.push_back(table_of(type, pooling));
    out.back().num_embeddings = rows;
    out.back().embedding_dim = dim;
  }
  return out;
}

ShardingPlan plan_of(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, const Topology& topology) {
  const int64_t width = std::min<int64_t>(4, (tables[0].embedding_dim + 1) / 2);
  ShardingPlan plan{.world_size = topology.world_size, .local_world_size = topology.local_world_size};
  plan.modules.emplace_back("sparse", test::plan_of(runtime, tables, topology, {}, {.min_partition = width}));
  return plan;
}

struct BatchOptions {
  int step = 0;
  int64_t samples = 0;  // per rank
  bool weighted = false;
  bool divided = false;  // divides weights by the bag's length
  int64_t rows = kRows;  // per table
};

// Bags of 0..3 ids for every feature, of these ranks in sequence.
KeyedJaggedTensor batch_of(const std::vector<int>& ranks, const BatchOptions& o) {
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  std::vector<float> weights;
  for (size_t f = 0; f < kTypes.size(); ++f) {
    keys.push_back("f_" + kTypes[f]);
    for (int rank : ranks) {
      for (int64_t b = 0; b < o.samples; ++b) {
        const int64_t length = (b + rank + o.step) % 4;
        lengths.push_back(static_cast<int32_t>(length));
        for (int64_t i = 0; i < length; ++i) {
          ids.push_back((static_cast<int64_t>(f) * 5 + b * 3 + i * 4 + int64_t{rank} * 7 + o.step) % o.rows);
          weights.push_back(static_cast<float>((b + i + o.step) % 5 + 1) / 4 /
                            static_cast<float>(o.divided ? length : 1));
        }
      }
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths),
                                              o.weighted ? Tensor::from(weights) : Tensor());
}

float gradient_at(int64_t i) { return static_cast<float>(i % 9 - 4) / 8; }

Tensor gradient_like(const Tensor& output) {
  Tensor grad = Tensor::empty(output.shape());
  for (int64_t i = 0; i < grad.numel(); ++i) grad.data<float>()[i] = gradient_at(i);
  return grad;
}

// Rank r has 1 + 2 r batches and continues with empty ones until all ranks have finished. In every step, the unsharded
// module gets the batches of the ranks that still have one.
std::string run_out_early(const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto tables = tables_of(PoolingType::kSum);
  const EmbeddingBagCollection described(runtime, {.tables = tables, .device = kMeta});
  DistributedModelParallelOptions options{.plan = plan_of(runtime, tables, topology_of(where))};
  options.sharded.optimizer = kAdagrad;
  options.bucket_mib = 1e-6;
  const auto dense = std::make_shared<Parameter>();
  dense->name = "bias";
  dense->value = Tensor::from<float>({0});
  const auto unused = std::make_shared<Parameter>();
  unused->name = "unused";
  unused->value = Tensor::from<float>({0, 0});
  DistributedModelParallel model(runtime, {.bag_collections = {{"sparse", &described}}, .dense = {unused, dense}},
                                 group, options);
  EmbeddingBagCollection whole(runtime, {.tables = tables, .optimizer = kAdagrad});
  const auto batches = [](int rank) { return 1 + 2 * rank; };
  int step = 0;
  for (bool all_finished = false; !all_finished; ++step) {
    if (step > 100) return "never finished\n";
    const bool finished = step >= batches(where.rank);
    const auto out = model.bags("sparse")
                         .forward(batch_of({where.rank}, {.step = step, .samples = finished ? 0 : 5}), finished)
                         .wait();
    all_finished = out.all_finished;
    dense->grad = finished ? Tensor() : Tensor::from<float>({1});
    if (step % 2 == 1) {  // exchanges of dense gradients start before those of the tables; a bucket for each
      if (where.rank % 2 == 1) model.gradients_finished({unused});
      model.gradients_finished({dense});
      model.gradients_finished();
    }
    model.bags("sparse").backward(out, gradient_like(out.values.values()));
    model.all_reduce_gradients();
    if (unused->grad.defined()) return "a parameter without a gradient on any rank got one\n";
    if (where.world_size > 1 && dense->grad.defined() && dense->grad.raw() != dense->grad_buffer.raw())
      return "the sum is not where the next gradient is made\n";
    std::vector<int> still;
    for (int r = 0; r < where.world_size; ++r) {
      if (step < batches(r)) still.push_back(r);
    }
    const double mean = static_cast<double>(still.size()) / where.world_size;
    const double got = dense->grad.defined() ? dense->grad.item(0) : 0;
    if (std::abs(got - mean) > 1e-6) return str_cat("the dense gradient is ", got, ", not ", mean, "\n");
    if (still.empty()) continue;
    EmbeddingContext context;
    const KeyedTensor want = whole.forward(batch_of(still, {.step = step, .samples = 5}), &context);
    Tensor grad = Tensor::empty(want.values().shape());
    const int64_t each = grad.numel() / static_cast<int64_t>(still.size());
    for (int64_t i = 0; i < grad.numel(); ++i)
      grad.data<float>()[i] = gradient_at(i % each) / static_cast<float>(where.world_size);
    whole.backward(std::move(context), grad);
    const std::string text = compare_weights(model.bags("sparse"), whole, 1e-5);
    if (!text.empty()) return str_cat("step ", step, ": ", text);
  }
  group->barrier();
  // One step more than the longest rank has batches: in that step all ranks say that they have finished.
  return step == batches(where.world_size - 1) + 1 ? "" : str_cat("finished after ", step, " steps\n");
}

// `mine` are the gradients of a rank's weights. `all` are those of the unsharded module for all ranks' batches, without
// the division by the number of ranks and by the bag's length.
std::string compare_weight_gradients(const Tensor& mine, const Tensor& all, const RankEnvironment& where,
                                     const BatchOptions& o) {
  int64_t at = 0, at_all = 0;
  for (size_t f = 0; f < kTypes.size(); ++f) {
    for (int rank = 0; rank < where.world_size; ++rank) {
      for (int64_t b = 0; b < o.samples; ++b) {
        const int64_t length = (b + rank + o.step) % 4;
        for (int64_t i = 0; i < length; ++i, ++at_all) {
          if (rank != where.rank) continue;
          const double want = all.item(at_all) * where.world_size / static_cast<double>(length), got = mine.item(at++);
          if (std::abs(got - want) > 1e-5 * (1 + std::abs(want)))
            return str_cat("the gradient of a weight of ", kTypes[f], " is ", got, ", not ", want, "\n");
        }
      }
    }
  }
  return at == mine.numel() ? "" : str_cat("there are ", mine.numel(), " gradients for ", at, " ids\n");
}

// The unsharded module has no weighted MEAN, but a weighted SUM, so weights are divided by the bag's length.
std::string weighted_mean(const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto tables = tables_of(PoolingType::kMean);
  const Topology topology = topology_of(where);
  ShardedModuleOptions options{.optimizer = kAdagrad, .is_weighted = true};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options)
                     .shard(tables, plan_of(runtime, tables, topology).at("sparse"), group);
  EmbeddingBagCollection whole(runtime,
                               {.tables = tables_of(PoolingType::kSum), .is_weighted = true, .optimizer = kAdagrad});
  for (int step = 0; step < 3; ++step) {
    const BatchOptions how{.step = step, .samples = 6, .weighted = true};
    const KeyedJaggedTensor batch = batch_of({where.rank}, how);
    const auto mine = sharded.forward(batch).wait();
    std::vector<int> all(static_cast<size_t>(where.world_size));
    std::iota(all.begin(), all.end(), 0);
    EmbeddingContext context;
    const KeyedTensor want =
        whole.forward(batch_of(all, {.step = step, .samples = 6, .weighted = true, .divided = true}), &context);
    const Tensor& got = mine.values.values();
    std::string text = difference("output", got, want.values().narrow(where.rank * how.samples, how.samples), 1e-5);
    const Tensor of_weights = sharded.weight_gradients(batch, gradient_like(got));
    sharded.backward(mine, gradient_like(got));
    Tensor grad = Tensor::empty(want.values().shape());
    for (int64_t i = 0; i < grad.numel(); ++i)
      grad.data<float>()[i] = gradient_at(i % got.numel()) / static_cast<float>(where.world_size);
    const EmbeddingGradients gradients = whole.backward(std::move(context), grad);
    text += compare_weights(sharded, whole, 1e-5) +
            compare_weight_gradients(of_weights, gradients.per_sample_weights, where, how);
    if (!text.empty()) return text;
  }
  group->barrier();
  return {};
}

// Tables with few rows and odd widths, and one sample per step on one rank: more ranks than rows, columns or samples.
std::string few_of_all(const RankEnvironment& where, int64_t rows, int64_t dim) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto tables = tables_of(PoolingType::kMean, rows, dim);
  const Topology topology = topology_of(where);
  const ShardedModuleOptions options{.optimizer = kAdagrad};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options)
                     .shard(tables, plan_of(runtime, tables, topology).at("sparse"), group);
  EmbeddingBagCollection whole(runtime, {.tables = tables, .optimizer = kAdagrad});
  for (int step = 0; step < where.world_size + 1; ++step) {
    const int owner = step % where.world_size;
    const int64_t mine = where.rank == owner ? 1 : 0;
    const auto out = sharded.forward(batch_of({where.rank}, {.step = step, .samples = mine, .rows = rows})).wait();
    EmbeddingContext context;
    const KeyedTensor want = whole.forward(batch_of({owner}, {.step = step, .samples = 1, .rows = rows}), &context);
    std::string text = difference("output", out.values.values(), want.values().narrow(0, mine), 1e-5);
    sharded.backward(out, gradient_like(out.values.values()));
    Tensor grad = gradient_like(want.values());
    for (float& g : grad.span<float>()) g /= static_cast<float>(where.world_size);
    whole.backward(std::move(context), grad);
    text += compare_weights(sharded, whole, 1e-5);
    if (!text.empty()) return str_cat("step ", step, ": ", text);
  }
  group->barrier();
  return {};
}

// 2^31 ids that use no memory, because nobody reads them; undefined if the address space is too small.
Tensor too_many_ids() {
  constexpr int64_t kIds = int64_t{1} << 31, kBytes = kIds * 4;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return {};
  return Tensor::borrow(memory, {kIds}, DType::kInt32,
                        std::shared_ptr<void>(memory, [](void* at) { ::munmap(at, kBytes); }));
}

// The last rank's batch has one bag with all of them. Returns the error.
std::string bag_too_long(const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto tables = tables_of(PoolingType::kSum);
  const Topology topology = topology_of(where);
  const ShardedModuleOptions options{.optimizer = kAdagrad};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options)
                     .shard(tables, plan_of(runtime, tables, topology).at("sparse"), group);
  const Tensor ids = where.rank + 1 < where.world_size ? Tensor::empty({0}, DType::kInt32) : too_many_ids();
  std::vector<std::string> keys;
  for (const std::string& type : kTypes) keys.push_back("f_" + type);
  std::vector<int64_t> lengths(keys.size());
  lengths[1] = ids.numel();
  return test::refusal(
      [&] { sharded.forward(KeyedJaggedTensor::from_lengths_sync(keys, ids, Tensor::from(lengths))).wait(); });
}

// A table of two rows: the third and the fourth rank have an empty shard.
std::string shards_without_rows(const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  EmbeddingBagConfig table = table_of("row_wise", PoolingType::kSum);
  table.num_embeddings = 2;
  table.optimizer = kAdagrad;
  const Topology topology = topology_of(where);
  const auto sharded = EmbeddingBagCollectionSharder(runtime, {})
                           .shard({table}, plan_of(runtime, {table}, topology).at("sparse"), group);
  const auto held = sharded.held_shards();
  if (held.size() != 1) return str_cat(held.size(), " shards are held");
  const std::vector<int64_t> shape = {where.rank < 2 ? 1 : 0, kDim};
  if (sharded.weight(held[0]).shape() != shape) return "its weight has another shape";
  const auto states = sharded.states(held[0]);
  if (states.size() != 1 || states[0].first != "momentum1") return "its state has no name";
  if (states[0].second.shape() != shape) return "its state has another shape";
  group->barrier();
  return {};
}

TEST(Uneven, ShardsWithoutRowsAreHeld) {
  const auto out = cli::run_in_ranks(4, 4, 60, shards_without_rows);
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

using World = std::pair<int, int>;
class UnevenWorlds : public testing::TestWithParam<World> {};

TEST_P(UnevenWorlds, RanksThatRunOutEarlyTakePartUntilAllAreDone) {
  const auto out = cli::run_in_ranks(GetParam().first, GetParam().second, 60, run_out_early);
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

TEST_P(UnevenWorlds, WeightedMeanIsTheWeightedSumOverTheLength) {
  const auto out = cli::run_in_ranks(GetParam().first, GetParam().second, 60, weighted_mean);
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

TEST_P(UnevenWorlds, FewerSamplesRowsAndColumnsThanRanks) {
  for (const auto& [rows, dim] : {std::pair{13, 1}, {13, 3}, {13, 5}, {1, 3}, {2, 5}, {3, 1}}) {
    const auto out = cli::run_in_ranks(
        GetParam().first, GetParam().second, 60,
        [rows = rows, dim = dim](const RankEnvironment& where) { return few_of_all(where, rows, dim); });
    for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << rows << " x " << dim << ", rank " << r;
  }
}

TEST_P(UnevenWorlds, ABagThatIsTooLongIsAnErrorOnAllRanks) {
  if (!too_many_ids().defined()) GTEST_SKIP() << "no room for 8 GiB of addresses";
  const auto out = cli::run_in_ranks(GetParam().first, GetParam().second, 60, bag_too_long);
  for (const std::string& error : out) {
    EXPECT_EQ(error,
              str_cat("rank ", GetParam().first - 1, ": feature \"f_row_wise\" has 2147483648 ids in sample 0, but ",
                      "at most 2147483647 can be in a rank's batch: make it smaller"));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, UnevenWorlds,
                         testing::Values(World{1, 1}, World{2, 2}, World{2, 1}, World{4, 2}, World{6, 3}),
                         [](const auto& info) {
                           return str_cat(info.param.first, "_ranks_", info.param.second, "_per_host");
                         });

}  // namespace
}  // namespace tessera::test::uneven_test
