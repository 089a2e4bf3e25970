// The sharded step with tables on a device equals the one in host memory: every sharding type, one host and several,
// pooled and sequences, a different batch size per feature, batches taken ahead of their steps. Devices are a fake one
// that moves rows, one that leaves this to the host, and the emulated GPU or another (gpu_under_test.h).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <future>

#include "fake_runtime.h"
#include "gpu_under_test.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/device.h"

namespace tessera {
namespace {

using test::difference;
using test::plan_of;
using test::topology_of;

constexpr int64_t kRows = 13, kDim = 8;
const char* const kGpu = test::gpu_under_test();
const std::vector<std::string> kTypes = {"table_wise",     "row_wise",          "column_wise", "data_parallel",
                                         "table_row_wise", "table_column_wise", "grid_shard"};

struct Case {
  int world, local_world;
  bool sequence = false;
  bool weighted = false;
  const char* device = "fake";
  bool variable = false;  // a different number of samples for each feature
  bool is_gpu() const { return device == kGpu; }
};

std::vector<EmbeddingBagConfig> tables_of(const Case& c) {
  std::vector<EmbeddingBagConfig> out;
  for (const std::string& type : kTypes) {
    EmbeddingBagConfig table{.name = type,
                             .num_embeddings = kRows,
                             .embedding_dim = kDim,
                             .feature_names = {"f_" + type},
                             .pooling = out.size() % 2 ? PoolingType::kMean : PoolingType::kSum};
    if (out.size() == 2) table.optimizer = {"adam", R"({"learning_rate": 0.1})", 0};
    if (c.sequence) table.pooling = PoolingType::kNone;
    out.push_back(std::move(table));
  }
  return out;
}

// Which of a feature's samples each sample of the batch uses; in step 2, more than a hundred use the same one.
Tensor inverse_indices(const std::vector<int64_t>& samples, int64_t batch) {
  Tensor out = Tensor::empty({static_cast<int64_t>(samples.size()), batch}, DType::kInt64);
  for (size_t f = 0; f < samples.size(); ++f) {
    for (int64_t b = 0; b < batch; ++b)
      out.data<int64_t>()[static_cast<int64_t>(f) * batch + b] = b % 7 ? 0 : (b / 7 + 2 * b) % samples[f];
  }
  return out;
}

// Bags of 0..3 ids; a rank without samples also takes part.
KeyedJaggedTensor batch_of(const Case& c, int rank, int step) {
  const int64_t batch = rank == 1 && step == 1 ? 0 : c.variable && step == 2 ? 130 : 5 + rank + step;
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  std::vector<float> weights;
  KeyedJaggedTensor::Options o;
  std::vector<int64_t> of_feature;
  for (size_t f = 0; f < kTypes.size(); ++f) {
    keys.push_back("f_" + kTypes[f]);
    const int64_t samples = c.variable && batch ? 1 + (static_cast<int64_t>(f) + rank + step) % 5 : batch;
    of_feature.push_back(samples);
    o.stride_per_key_per_rank.push_back({samples});
    for (int64_t b = 0; b < samples; ++b) {
      const int64_t length = (b + rank + step + static_cast<int64_t>(f)) % 4;
      lengths.push_back(static_cast<int32_t>(length));
      for (int64_t i = 0; i < length; ++i) {
        ids.push_back((static_cast<int64_t>(f) * 5 + b * 3 + i * 4 + int64_t{7} * rank + step) % kRows);
        weights.push_back(static_cast<float>((b + i + step) % 5 + 1) / 4);
      }
    }
  }
  if (!c.variable)
    return KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths),
                                                c.weighted ? Tensor::from(weights) : Tensor());
  o.keys = keys;
  o.values = Tensor::from(ids);
  o.lengths = Tensor::from(lengths);
  if (c.weighted) o.weights = Tensor::from(weights);
  o.inverse_indices = {keys, inverse_indices(of_feature, batch)};
  return KeyedJaggedTensor(std::move(o));
}

Tensor gradient_of(const std::vector<int64_t>& shape) {
  Tensor grad = Tensor::empty(shape);
  for (int64_t i = 0; i < grad.numel(); ++i) grad.data<float>()[i] = static_cast<float>(i % 9 - 4) / 8;
  return grad;
}

template <class Module>
std::string compare_rows(const Module& a, const Module& b, int step, double most = 1e-6) {
  for (const HeldShard& held : a.held_shards()) {
    const std::string what = str_cat("step ", step, ", table ", held.table);
    std::string text = difference(what, a.weight(held), b.weight(held), most);
    const auto mine = a.states(held), theirs = b.states(held);
    for (size_t k = 0; k < mine.size(); ++k)
      text += difference(what + " state", mine[k].second, theirs[k].second, most);
    if (!text.empty()) return text;
  }
  return {};
}

RuntimeOptions with_devices() {
  RuntimeOptions options = test::with_fake_device();
  options.plugin_path.push_back(TESSERA_EMULATOR_PLUGINS);
  return options;
}

struct Setting {
  Setting(const Case& c, const RankEnvironment& where)
      : runtime(with_devices()),
        device(open_device(runtime, c.device, where.rank)),
        group(ProcessGroup::connect(runtime, where)),
        tables(tables_of(c)),
        plan(plan_of(runtime, tables, topology_of(where))) {}

  ShardedModuleOptions options(const Case& c, bool on_device) const {
    ShardedModuleOptions o{.kernel = !on_device ? "reference" : c.is_gpu() ? kGpu : "fake(reference)"};
    if (on_device) o.stream = device;
    o.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.1})", 0};
    o.is_weighted = c.weighted;
    return o;
  }

  Runtime runtime;
  DeviceStreamPtr device;
  std::shared_ptr<ProcessGroup> group;
  std::vector<EmbeddingBagConfig> tables;
  EmbeddingModuleShardingPlan plan;
};

std::string pooled(const Case& c, const RankEnvironment& where) {
  const Setting s(c, where);
  const auto make = [&](bool on_device) {
    return EmbeddingBagCollectionSharder(s.runtime, s.options(c, on_device)).shard(s.tables, s.plan, s.group);
  };
  auto host = make(false), device = make(true);
  uint64_t allocations = 0;
  for (int step = 0; step < 4; ++step) {
    const auto batch = batch_of(c, where.rank, step);
    const auto want = host.forward(batch).wait();
    const uint64_t waits = s.device->stats().synchronizes;
    const auto got = device.forward(batch).wait();
    if (c.variable && c.world == 1 && step == 3 && s.device->stats().synchronizes != waits)
      return "a forward waited that has met a larger batch before\n";
    const Tensor& values = got.values.values();
    if (values.device() != s.device->device()) return "the output is not on the device\n";
    std::string text = difference(str_cat("step ", step, ": output"), s.device->to_host(values), want.values.values());
    const Tensor grad = gradient_of({values.size(0), values.size(1)});
    host.backward(want, grad);
    device.backward(got, step % 2 ? grad : s.device->to_device(grad));
    text += compare_rows(device, host, step);
    if (!text.empty()) return text;
    allocations = s.device->stats().allocations;
  }
  s.group->barrier();
  return allocations ? "" : "nothing was allocated on the device\n";
}

std::string sequence(const Case& c, const RankEnvironment& where) {
  const Setting s(c, where);
  const auto make = [&](bool on_device) {
    return EmbeddingCollectionSharder(s.runtime, s.options(c, on_device)).shard(s.tables, s.plan, s.group);
  };
  auto host = make(false), device = make(true);
  for (int step = 0; step < 3; ++step) {
    const auto batch = batch_of(c, where.rank, step);
    const auto want = host.forward(batch).wait();
    const auto got = device.forward(batch).wait();
    std::string text;
    std::vector<std::pair<std::string, Tensor>> grads;
    for (size_t i = 0; i < want.values.size(); ++i) {
      const Tensor& mine = got.values[i].second.values();
      text +=
          difference(str_cat("step ", step, ": output ", i), s.device->to_host(mine), want.values[i].second.values());
      grads.emplace_back(want.values[i].first, gradient_of({mine.size(0), mine.size(1)}));
    }
    host.backward(want, grads);
    for (auto& [name, grad] : grads) {
      if (step != 1) grad = s.device->to_device(grad);
    }
    device.backward(got, grads);
    text += compare_rows(device, host, step);
    if (!text.empty()) return text;
  }
  s.group->barrier();
  return {};
}

// Steps with batches of three sizes. Later ones find memory that is large enough, and wait for nothing.
constexpr int kSteps = 12;

// Copies of the steps' outputs; nothing waits for the lagging device.
using Outputs = std::vector<Tensor>;

// Runs the batches in sequence, each through `next(step)`; gradients come from either place.
template <class Next>
Outputs train(const Setting& s, ShardedEmbeddingBagCollection& collection, const Next& next) {
  Outputs out;
  for (int step = 0; step < kSteps; ++step) {
    const auto output = next(step);
    const Tensor& values = output.values.values();
    out.push_back(s.device->empty(values.shape()));
    s.device->copy(values, out.back());
    const Tensor grad = gradient_of({values.size(0), values.size(1)});
    collection.backward(output, step % 2 ? grad : s.device->upload(grad));
  }
  return out;
}

// A thread takes the next step's batch during the current step: results have the same bits as in sequence.
std::string ahead(const Case& c, const RankEnvironment& where) {
  Setting s(c, where);
  if (c.world == 1) {  // nothing then waits for the device
    std::erase_if(s.tables, [](const EmbeddingBagConfig& t) { return t.name == "data_parallel"; });
    s.plan = plan_of(s.runtime, s.tables, topology_of(where));
  }
  const auto make = [&] {
    return EmbeddingBagCollectionSharder(s.runtime, s.options(c, true)).shard(s.tables, s.plan, s.group);
  };
  std::vector<KeyedJaggedTensor> batches;
  for (int step = 0; step < kSteps; ++step) batches.push_back(batch_of(c, where.rank, step % 3));
  auto in_turn = make(), collection = make();
  const Outputs want =
      train(s, in_turn, [&](int step) { return in_turn.forward(batches[static_cast<size_t>(step)]).wait(); });
  ShardedInputs inputs(collection);
  std::array<StepHandle, 2> places;  // used in turn
  std::future<void> taking;
  const auto take = [&](int step) {
    StepHandle& place = places[static_cast<size_t>(step % 2)];
    place = inputs.reserve();
    taking = std::async(std::launch::async, [&, step] { inputs.take(place, batches[static_cast<size_t>(step)]); });
  };
  take(0);
  const Outputs got = train(s, collection, [&](int step) {
    taking.get();
    if (step + 1 < kSteps) take(step + 1);
    return collection.forward(std::move(places[static_cast<size_t>(step % 2)])).wait();
  });
  std::string text;
  for (size_t i = 0; i < got.size(); ++i)
    text += difference(str_cat("step ", i, ": output"), s.device->to_host(got[i]), s.device->to_host(want[i]), 0);
  text += compare_rows(collection, in_turn, kSteps, 0);
  s.group->barrier();
  return text;
}

// Has only data-parallel tables. One rank exchanges nothing, so any wait is that of the lookup.
std::string data_parallel(const Case& c, const RankEnvironment& where) {
  Setting s(c, where);
  std::erase_if(s.tables, [](const EmbeddingBagConfig& t) { return t.name != "data_parallel"; });
  s.tables.push_back(s.tables[0]);
  s.tables[1].name = "wide";
  s.tables[1].embedding_dim = 2 * kDim;
  s.tables[1].feature_names = {"f_row_wise"};
  s.plan = plan_of(s.runtime, s.tables, Topology::of(where.world_size, where.world_size, "cpu"), {"data_parallel"});
  const auto make = [&](bool on_device) {
    return EmbeddingBagCollectionSharder(s.runtime, s.options(c, on_device)).shard(s.tables, s.plan, s.group);
  };
  auto host = make(false), device = make(true);
  for (const int step : {3, 0, 1, 2}) {  // the largest batch first, because growing memory waits
    const auto batch = batch_of(c, where.rank, step);
    const uint64_t before = s.device->stats().synchronizes;
    const auto got = device.forward(batch).wait();
    if (c.world == 1 && step != 3 && s.device->stats().synchronizes != before)
      return "the lookup waited for the device\n";
    const auto want = host.forward(batch).wait();
    const Tensor grad = gradient_of({want.values.values().size(0), 3 * kDim});
    host.backward(want, grad);
    device.backward(got, s.device->to_device(grad));
    std::string text =
        difference(str_cat("output ", step), s.device->to_host(got.values.values()), want.values.values()) +
        compare_rows(device, host, step);
    if (!text.empty()) return text;
  }
  const auto mine = device.data_parallel_gradients(), theirs = host.data_parallel_gradients();
  if (mine.size() != 2 || theirs.size() != 2) return "there are not two gradients\n";
  return difference("gradient of " + mine[0].first, mine[0].second, theirs[0].second) +
         difference("gradient of " + mine[1].first, mine[1].second, theirs[1].second);
}

TEST(DataParallel, LooksUpWithoutAWaitAndKeepsItsGradients) {
  for (const Case& c : {Case{1, 1}, Case{2, 2}, Case{1, 1, false, false, kGpu}, Case{2, 2, false, true, kGpu}}) {
    const auto out =
        cli::run_in_ranks(c.world, c.world, 60, [&](const RankEnvironment& where) { return data_parallel(c, where); });
    for (const std::string& text : out) EXPECT_EQ(text, "") << c.world << " ranks on " << c.device;
  }
}

TEST(Ahead, GivesTheSameBitsAsInTurn) {
  for (const Case& c :
       {Case{1, 1}, Case{2, 2, false, true}, Case{4, 2}, Case{1, 1, false, false, "fake-bare"},
        Case{2, 2, false, false, "fake", true}, Case{1, 1, false, false, kGpu}, Case{2, 2, false, true, kGpu, true}}) {
    const auto out =
        cli::run_in_ranks(c.world, c.local_world, 60, [&](const RankEnvironment& where) { return ahead(c, where); });
    for (const std::string& text : out)
      EXPECT_EQ(text, "") << c.world << " ranks on " << c.device << (c.variable ? ", variable" : "");
  }
}

class OnDevice : public testing::TestWithParam<Case> {};

TEST_P(OnDevice, GivesTheSameAsInHostMemory) {
  const Case c = GetParam();
  const auto out = cli::run_in_ranks(c.world, c.local_world, 60, [&](const RankEnvironment& where) {
    return c.sequence ? sequence(c, where) : pooled(c, where);
  });
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

INSTANTIATE_TEST_SUITE_P(Worlds, OnDevice,
                         testing::Values(Case{1, 1}, Case{2, 2}, Case{2, 2, false, true}, Case{2, 2, true},
                                         Case{2, 2, false, false, "fake-bare"}, Case{4, 2},
                                         Case{4, 2, false, false, "fake-bare"}, Case{1, 1, false, false, kGpu},
                                         Case{2, 2, false, true, kGpu}, Case{2, 2, true, false, kGpu},
                                         Case{1, 1, false, false, "fake", true}, Case{2, 2, false, true, "fake", true},
                                         Case{4, 2, false, false, "fake", true},
                                         Case{2, 2, false, false, "fake-bare", true},
                                         Case{1, 1, false, false, kGpu, true}, Case{2, 2, false, true, kGpu, true}),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return str_cat(c.world, "_ranks_", c.local_world, "_per_host", c.sequence ? "_sequence" : "",
                                          c.weighted ? "_weighted" : "", c.variable ? "_variable" : "", '_',
                                          c.is_gpu()                        ? kGpu
                                          : c.device == std::string("fake") ? "fake"
                                                                            : "fake_bare");
                         });

}  // namespace
}  // namespace tessera
