// Once it has seen the largest batch, a step of sharded tables allocates nothing in any thread: malloc itself is
// replaced and counts.
#include <gtest/gtest.h>

#include <atomic>

#include "replaced_malloc.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/layer_graph.h"

namespace {

std::atomic<bool> watched{false};
std::atomic<int64_t> allocations{0};

}  // namespace

void tessera::test::on_allocation() {
  if (watched.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}

namespace tessera {
namespace {

constexpr int64_t kRows = 1000, kDim = 16;
// acme.stripe is plugins/template: it routes rows instead of dividing them into ranges.
const std::vector<std::string> kTypes = {"table_wise", "row_wise", "column_wise", "data_parallel", "acme.stripe"};

template <class Call>
int64_t allocations_of(const Call& call) {
  allocations = 0;
  watched = true;
  call();
  watched = false;
  return allocations;
}

std::vector<EmbeddingBagConfig> tables_of(PoolingType pooling) {
  std::vector<EmbeddingBagConfig> tables;
  for (int t = 0; t < 10; ++t) {
    EmbeddingBagConfig c{.name = str_cat("a table whose name has no room inside a string ", t),
                         .num_embeddings = kRows,
                         .embedding_dim = kDim,
                         .feature_names = {str_cat("a feature whose name has no room inside a string ", t)},
                         .pooling = pooling};
    tables.push_back(std::move(c));
  }
  return tables;
}

// Bags of 0 to 3 ids.
KeyedJaggedTensor batch_of(const std::vector<EmbeddingBagConfig>& tables, DType dtype, int64_t samples, int64_t seed) {
  KeyedJaggedTensor batch = test::bags_of(
      tables, samples, [&](int64_t, int64_t b) { return (b + seed) % 4; },
      [&](int64_t, int64_t b, int64_t i) { return (b * 331 + 7919 * i + seed * 101) % kRows; });
  if (dtype == DType::kInt32)
    batch = KeyedJaggedTensor::from_lengths_sync(batch.keys(), batch.values().to(dtype), batch.lengths());
  batch.offsets();  // computed on first use
  return batch;
}

struct Kind {
  PoolingType pooling = PoolingType::kSum;
  DType ids = DType::kInt64;
  int threads = 1;
  int64_t largest = 64;  // samples
  // The inline payload's size follows the previous batch: if the largest batch does not use it, the others' size has
  // not been seen yet.
  std::vector<size_t> first_batches = {0, 0, 0};
};

struct Workload {
  ShardedEmbeddingBagCollection module;
  std::vector<KeyedJaggedTensor> batches;  // the largest one first
  Tensor grad;

  void train(size_t batch) {
    const int64_t samples = batches[batch].stride(), width = grad.size(1);
    auto out = module.forward(batches[batch]).wait();
    module.backward(out, grad.first({samples, width}));
  }
  void infer(size_t batch) { module.forward(batches[batch], false, false).wait(); }
};

Workload workload_of(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const Kind& kind) {
  const auto tables = tables_of(kind.pooling);
  const Topology topology = Topology::of(group->world_size(), group->local_world_size(), "cpu");
  const auto plan = test::plan_of(runtime, tables, topology, kTypes);
  const ShardedModuleOptions options{.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.1})", 0}};
  Workload w{EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group), {}, {}};
  for (const int64_t samples : {kind.largest, int64_t{1}, int64_t{17}, kind.largest - 1})
    w.batches.push_back(batch_of(tables, kind.ids, samples, samples + group->rank()));
  w.grad = Tensor::empty({kind.largest, static_cast<int64_t>(tables.size()) * kDim});
  w.grad.fill(0.01);
  return w;
}

// The result says what allocated memory; empty if nothing did.
std::string count_in_steps(const RankEnvironment& where, const Kind& kind) {
  const Runtime runtime({{TESSERA_TEST_PLUGINS}, {}, true, kind.threads});
  const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 30});
  Workload w = workload_of(runtime, group, kind);
  for (const size_t batch : kind.first_batches) w.train(batch);
  std::string wrong;
  for (size_t step = 0; step < 12; ++step) {
    const size_t batch = step % w.batches.size();
    const int64_t found = allocations_of([&] { w.train(batch); });
    if (found) wrong += str_cat("rank ", where.rank, ": training step ", step, " asked for memory ", found, " times\n");
  }
  for (size_t batch = 0; batch < w.batches.size(); ++batch) w.infer(batch);  // ids that repeat are sought only here
  for (size_t batch = 0; batch < w.batches.size(); ++batch) {
    const int64_t found = allocations_of([&] { w.infer(batch); });
    if (found) wrong += str_cat("rank ", where.rank, ": inference asked for memory ", found, " times\n");
  }
  group->barrier();
  return wrong;
}

// The same with batches taken ahead, here in sequence.
std::string count_with_inputs_ahead(const RankEnvironment& where) {
  const Runtime runtime({{TESSERA_TEST_PLUGINS}, {}, true, 1});
  const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 30});
  Workload w = workload_of(runtime, group, {});
  ShardedInputs inputs(w.module);
  StepHandle ahead = inputs.reserve();
  inputs.take(ahead, w.batches[0]);
  const auto step = [&](size_t batch, size_t next) {
    StepHandle current = std::exchange(ahead, inputs.reserve());
    inputs.take(ahead, w.batches[next]);
    auto out = w.module.forward(std::move(current)).wait();
    w.module.backward(out, w.grad.first({w.batches[batch].stride(), w.grad.size(1)}));
  };
  for (int i = 0; i < 4; ++i) step(0, 0);
  std::string wrong;
  for (size_t i = 0; i < 8; ++i) {
    const size_t batch = i % w.batches.size(), next = (i + 1) % w.batches.size();
    const int64_t found = allocations_of([&] { step(batch, next); });
    if (found) wrong += str_cat("rank ", where.rank, ": step ", i, " asked for memory ", found, " times\n");
  }
  group->barrier();
  return wrong;
}

std::string in_ranks(int world, const std::function<std::string(const RankEnvironment&)>& body) {
  std::string all;
  for (const std::string& text : cli::run_in_ranks(world, world, 120, body)) all += text;
  return all;
}

// The allocations of three steps whose sequences are held until the next ones are there, and of three that are let go.
std::string count_of_held_sequences(const RankEnvironment& where) {
  const Runtime runtime({.threads = 1});
  const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 30});
  const auto tables = tables_of(PoolingType::kNone);
  const auto plan = test::plan_of(runtime, tables, Topology::of(1, 1, "cpu"), {"row_wise"});
  auto module = EmbeddingCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
  const KeyedJaggedTensor batch = batch_of(tables, DType::kInt64, 64, 64);
  Tensor held;
  const auto three = [&](bool hold) {
    return allocations_of([&] {
      for (int step = 0; step < 3; ++step) {
        const auto out = module.forward(batch, false, false).wait();
        held = hold ? out.values.front().second.values() : Tensor();
      }
    });
  };
  three(true);
  const int64_t holding = three(true);
  return holding == three(false) ? "" : "memory was asked for because an output was held";
}

TEST(StepAllocations, NoneForSequencesThatAreHeld) { EXPECT_EQ(in_ranks(1, count_of_held_sequences), ""); }

TEST(StepAllocations, AreCounted) {
  Tensor kept;
  EXPECT_GT(allocations_of([&] { kept = Tensor::empty({100}); }), 0);
}

TEST(StepAllocations, NoneOnOneRank) {
  EXPECT_EQ(in_ranks(1, [](const RankEnvironment& r) { return count_in_steps(r, {}); }), "");
}

TEST(StepAllocations, NoneOnTwoRanks) {
  const Kind kinds[] = {{}, {.pooling = PoolingType::kMean}, {.ids = DType::kInt32}};
  for (const Kind& kind : kinds)
    EXPECT_EQ(in_ranks(2, [&](const RankEnvironment& r) { return count_in_steps(r, kind); }), "");
}

// Batches that are worth several threads.
TEST(StepAllocations, NoneOnTwoThreads) {
  const Kind kind{.threads = 2, .largest = 4000, .first_batches = {0, 1, 2, 3, 0, 1, 2, 3}};
  EXPECT_EQ(in_ranks(2, [&](const RankEnvironment& r) { return count_in_steps(r, kind); }), "");
}

TEST(StepAllocations, NoneWithInputsAhead) { EXPECT_EQ(in_ranks(2, count_with_inputs_ahead), ""); }

// Layers that use parts of the pooled rows, one that two others use, and several heads.
TEST(LayerGraphs, AskForNoMemoryInAStep) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
  std::vector<EmbeddingBagConfig> two = tables_of(PoolingType::kSum);
  two.resize(2);
  ModelGraph model = graph_over(kDim, two);
  const std::string long_name = "a_layer_whose_name_has_no_room_inside_a_string";
  model.layers = {{long_name, "test.blend", {"dense", two[0].name, two[1].name}},
                  {"b", "test.blend", {two[1].name, long_name}}};
  model.heads = {{"one", "b"}, {"two", "b:1"}, {"three", two[0].name}};
  LayerGraph graph(runtime, model, {.seed = 1});
  const std::vector<int64_t> batches = {32, 7, 1, 32, 20};
  std::vector<std::vector<Tensor>> given, grads;
  for (const int64_t batch : batches) {
    given.push_back({Tensor::zeros({batch, kDim}), Tensor::zeros({batch, 2 * kDim})});
    grads.push_back({Tensor::zeros({batch, kDim}), Tensor::zeros({batch, 1}), Tensor::zeros({batch, kDim})});
  }
  const auto step = [&](size_t i) {
    graph.forward(given[i][0], given[i][1], true);
    (void)graph.backward(grads[i]);
    graph.forward(given[i][0], given[i][1], false);
  };
  step(0);
  for (size_t i = 0; i < batches.size(); ++i)
    EXPECT_EQ(allocations_of([&] { step(i); }), 0) << "batch of " << batches[i];
}

}  // namespace
}  // namespace tessera
