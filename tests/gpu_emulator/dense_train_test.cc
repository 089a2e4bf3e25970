// A DLRM trained entirely on a GPU, emulated or not (gpu_under_test.h): same losses as on the CPU, no waits, no
// allocations, checkpoints, batches taken ahead.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "gpu_under_test.h"
#include "spawn.h"
#include "tessera/checkpoint.h"
#include "tessera/layer_graph.h"
#include "tessera/train_loop.h"
#include "tessera/trainer.h"

namespace tessera::cli {
namespace {

constexpr int64_t kDense = 5, kDim = 8, kTables = 3, kRows = 40;

RuntimeOptions with_emulator() {
  return {.plugin_path = {TESSERA_EMULATOR_PLUGINS, TESSERA_PLUGINS}, .default_path = false};
}

// A trainer and its device.
class Training {
 public:
  // An empty `sharding` lets the planner choose.
  Training(const Runtime& runtime, const std::string& device, const std::string& sharding = "")
      : Training(runtime, device, ProcessGroup::connect(runtime, {}), sharding) {}
  Training(const Runtime& runtime, const std::string& device, std::shared_ptr<ProcessGroup> group,
           const std::string& sharding = "")
      : stream_(open_device(runtime, device)) {
    ModelTrainerOptions o;
    if (!sharding.empty())
      o.parallel.planner = {.topology = Topology::of(group->world_size(), group->local_world_size(), "cpu")};
    for (int64_t t = 0; t < kTables; ++t) {
      EmbeddingBagConfig table;
      table.name = str_cat("t", t);
      table.feature_names = {str_cat("f", t)};
      table.num_embeddings = kRows;
      table.embedding_dim = kDim;
      if (o.parallel.planner) o.parallel.planner->constraints[table.name].sharding_types = {sharding};
      o.tables.push_back(std::move(table));
    }
    o.graph = dlrm_graph({.dense_inputs = kDense, .bottom_mlp = {16, kDim}, .top_mlp = {20, 1}}, o.tables);
    o.seed = 3;
    o.dense_optimizer = {"adam", R"({"lr": 0.02})"};
    o.parallel.sharded.kernel = stream_ ? test::gpu_under_test() : "reference";
    o.parallel.sharded.seed = 3;
    o.parallel.sharded.stream = stream_;
    o.parallel.sharded.optimizer = {"exact_rowwise_adagrad", R"({"learning_rate": 0.05, "eps": 1e-8})", 0};
    trainer_ = std::make_unique<ModelTrainer>(runtime, std::move(group), std::move(o));
  }
  ModelTrainer& operator*() { return *trainer_; }
  ModelTrainer* operator->() { return trainer_.get(); }
  tsr_device_stats stats() const { return stream_->stats(); }
  void save(const std::string& directory) {
    save_checkpoint(directory, trainer_->parallel(), trainer_->dense_optimizer(), "{}");
  }
  void load(const std::string& directory) {
    load_checkpoint(directory, trainer_->parallel(), trainer_->dense_optimizer());
  }

 private:
  DeviceStreamPtr stream_;
  std::unique_ptr<ModelTrainer> trainer_;
};

Batch batch_of(uint64_t seed, int64_t samples) {
  std::mt19937_64 random(seed);
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  for (int64_t t = 0; t < kTables; ++t) {
    keys.push_back(str_cat("f", t));
    for (int64_t b = 0; b < samples; ++b) {
      lengths.push_back(static_cast<int32_t>(random() % 4));
      for (int32_t i = 0; i < lengths.back(); ++i) ids.push_back(static_cast<int64_t>(random() % kRows));
    }
  }
  Batch batch;
  batch.sparse = KeyedJaggedTensor::from_lengths_sync(keys, Tensor::from(ids), Tensor::from(lengths));
  batch.dense = Tensor::empty({samples, kDense});
  batch.labels = Tensor::empty({samples});
  batch.global_size = samples;
  for (float& v : batch.dense.span<float>()) v = static_cast<float>(random() % 1000) / 500.0f - 1;
  for (float& v : batch.labels.span<float>()) v = static_cast<float>(random() % 2);
  return batch;
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5 * std::abs(want[i])) << "step " << i;
}

// Must run first, because it forks processes: no device has threads here yet. Rank 1 has no sample in one step.
TEST(DenseTrainingOfTwoRanks, HasTheLossesOfTheCpu) {
  const auto texts = run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime(with_emulator());
    const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 60});
    Training cpu(runtime, "cpu", group), device(runtime, test::gpu_under_test(), group);
    for (uint64_t i = 0; i < 5; ++i) {
      const int64_t mine = group->rank() == 0 ? 9 : i == 2 ? 0 : 7;
      Batch batch = batch_of(2 * i + static_cast<uint64_t>(group->rank()), mine);
      batch.global_size = i == 2 ? 9 : 16;
      cpu->step(batch);
      device->step(batch);
    }
    const std::vector<double> want = cpu->take_losses(), got = device->take_losses();
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::abs(got[i] - want[i]) > 1e-5 * std::abs(want[i]))
        return str_cat("step ", i, ": ", got[i], " on the device, ", want[i], " on the CPU");
    }
    return device->dense_on_device() && got.size() == 5 ? "as on the CPU" : "not on the device";
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "as on the CPU");
}

// Three batches of different sizes in turn. `spoil` may change the batch of a step.
using Spoil = std::function<void(int64_t step, Batch& batch)>;

ReadBatch batches_of(int rank, const Spoil& spoil = nullptr) {
  return [rank, spoil](int64_t step, Batch& batch) {
    const int64_t which = step % 3;
    batch = batch_of(static_cast<uint64_t>(2 * which + rank), 9 - 3 * which);
    if (spoil) spoil(step, batch);
  };
}

// The losses of `steps` pipeline steps; `warm` is called before the last third of them.
std::vector<double> by_pipeline(Training& training, int64_t steps, bool ahead, const ReadBatch& read,
                                const std::function<void()>& warm = nullptr) {
  TrainPipeline inputs(read, training->embeddings(), {0, steps, ahead});
  try {
    for (int64_t step = 0; step < steps; ++step) {
      TrainInput& input = inputs.next();
      training->step(input.batch, std::move(input.taken), false);
      if (warm && step + 1 == steps - steps / 3) warm();
    }
  } catch (const std::exception& e) {
    inputs.abort(e.what());
    throw;
  }
  return training->take_losses();
}

// Must also run before there are threads. Batches taken ahead give the same losses as in sequence. An invalid batch on
// rank 1, or one that cannot be read, ends both ranks with the same message.
TEST(DenseTrainingAhead, OfTwoRanksHasTheBitsAndTheErrorsOfInTurn) {
  const auto texts = run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime(with_emulator());
    const auto error_of = [&](bool ahead, const std::shared_ptr<ProcessGroup>& group, const Spoil& spoil) {
      Training training(runtime, test::gpu_under_test(), group);
      return test::refusal([&] { by_pipeline(training, 8, ahead, batches_of(group->rank(), spoil)); });
    };
    const Spoil bad_id = [&](int64_t step, Batch& batch) {
      if (step == 3 && where.rank == 1) batch.sparse.values().data<int64_t>()[0] = kRows;
    };
    const Spoil torn = [&](int64_t step, Batch&) {
      if (step == 3 && where.rank == 1) fail(Code::kDataLoss, "line 3 is torn");
    };
    const auto group = ProcessGroup::connect(runtime, where, {"tcp", "{}", 60});
    Training in_turn(runtime, test::gpu_under_test(), group), ahead(runtime, test::gpu_under_test(), group);
    const std::vector<double> want = by_pipeline(in_turn, 8, false, batches_of(group->rank()));
    if (by_pipeline(ahead, 8, true, batches_of(group->rank())) != want) return "other losses than in turn";
    const std::string wrong = error_of(false, group, bad_id);
    if (const std::string got = error_of(true, group, bad_id); got != wrong) return str_cat(got, ", in turn: ", wrong);
    return str_cat(wrong, "; ", error_of(true, group, torn));
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text.rfind("rank 1: ", 0), 0u) << text;
    EXPECT_NE(text.find("line 3 is torn"), std::string::npos) << text;
  }
}

class DenseTraining : public testing::Test {
 protected:
  Runtime runtime_{with_emulator()};
};

TEST_F(DenseTraining, HasTheLossesAndThePredictionsOfTheCpu) {
  Training cpu(runtime_, "cpu"), device(runtime_, test::gpu_under_test());
  EXPECT_TRUE(device->dense_on_device());
  EXPECT_FALSE(cpu->dense_on_device());
  for (uint64_t i = 0; i < 6; ++i) {
    const Batch batch = batch_of(i, i == 3 ? 0 : 24 - 3 * static_cast<int64_t>(i));
    cpu->step(batch);
    device->step(batch);
  }
  const std::vector<double> want = cpu->take_losses();
  EXPECT_EQ(want[3], 0);
  EXPECT_GT(want[0], 1);
  expect_same(device->take_losses(), want);
  EXPECT_TRUE(device->take_losses().empty());
  const Batch batch = batch_of(9, 33);
  const Tensor a = device->predict(batch).at(0), b = cpu->predict(batch).at(0);
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < b.numel(); ++i) EXPECT_NEAR(a.item(i), b.item(i), 1e-4 * (1 + std::abs(b.item(i))));
  EXPECT_EQ(device->predict(batch_of(9, 0)).at(0).numel(), 0);
}

TEST_F(DenseTraining, AWarmStepNeitherWaitsForTheDeviceNorAsksForItsMemory) {
  Training device(runtime_, test::gpu_under_test());
  const Batch batches[] = {batch_of(1, 24), batch_of(2, 20)};
  for (const Batch& batch : batches) device->step(batch);
  for (const Batch& batch : batches) device->step(batch);
  const tsr_device_stats before = device.stats();
  for (int i = 0; i < 3; ++i) {
    for (const Batch& batch : batches) device->step(batch);
  }
  const tsr_device_stats after = device.stats();
  EXPECT_EQ(after.synchronizes, before.synchronizes);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(device->take_losses().size(), 10u);
  EXPECT_EQ(device.stats().synchronizes, before.synchronizes + 1) << "losses are read together";
}

TEST_F(DenseTraining, AheadHasTheBitsOfInTurnAndWaitsForNothingElse) {
  constexpr int64_t kSteps = 18;          // both places of the pipeline have seen all sizes before the last third
  const std::string lags = "table_wise";  // no step waits for the device
  Training in_turn(runtime_, test::gpu_under_test(), lags), ahead(runtime_, test::gpu_under_test(), lags);
  const std::vector<double> want = by_pipeline(in_turn, kSteps, false, batches_of(0));
  ASSERT_EQ(want.size(), static_cast<size_t>(kSteps));
  tsr_device_stats warm{}, end{};
  const ReadBatch read = [&, batches = batches_of(0)](int64_t step, Batch& batch) {
    batches(step, batch);
    if (step + 1 == kSteps) end = ahead.stats();
  };
  EXPECT_EQ(by_pipeline(ahead, kSteps, true, read, [&] { warm = ahead.stats(); }), want);
  EXPECT_GT(warm.allocations, 0u);
  EXPECT_EQ(end.allocations, warm.allocations);
  EXPECT_EQ(end.synchronizes, warm.synchronizes);
}

TEST_F(DenseTraining, GoesOnFromACheckpointOfEitherPlace) {
  const test::TestDirectory folder;
  Training device(runtime_, test::gpu_under_test());
  for (uint64_t i = 0; i < 3; ++i) device->step(batch_of(i, 16));
  device->take_losses();
  device.save(folder.file("device"));
  Training cpu(runtime_, "cpu"), again(runtime_, test::gpu_under_test()), back(runtime_, test::gpu_under_test());
  cpu.load(folder.file("device"));
  cpu.save(folder.file("cpu"));
  again.load(folder.file("device"));
  back.load(folder.file("cpu"));
  for (uint64_t i = 3; i < 6; ++i) {
    for (Training* t : {&device, &cpu, &again, &back}) (*t)->step(batch_of(i, 16));
  }
  const std::vector<double> want = device->take_losses();
  ASSERT_EQ(want.size(), 3u);
  EXPECT_EQ(again->take_losses(), want);  // the same bits
  EXPECT_EQ(back->take_losses(), want);
  expect_same(cpu->take_losses(), want);
}

}  // namespace
}  // namespace tessera::cli
