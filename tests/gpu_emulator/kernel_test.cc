// Compares the GPU kernel's plugin on the emulator with the reference kernel.
#include <cstring>
#include <functional>
#include <utility>

#include "emulator/runtime.h"
#include "test_refusals.h"

namespace tessera_cpu::test {
namespace {

const char* const kFused[] = {"exact_sgd", "exact_adagrad", "exact_rowwise_adagrad", "adam"};

// Sets the warp size and the number of OS threads that run blocks.
void emulate(int warp_size, int workers, uint64_t seed = 1) {
  emulator::Config config = emulator::config();
  config.warp_size = warp_size;
  config.workers = workers;
  config.seed = seed;
  config.delay = std::chrono::microseconds(0);
  emulator::configure(config);
}

// 1 or 2 features for each table: SUM, MEAN or none.
std::vector<FeatureShape> some_features(Random& random, const Options& o) {
  std::vector<FeatureShape> features;
  for (size_t t = 0; t < o.tables.size(); ++t) {
    for (uint64_t i = 0; i < 1 + random() % 2; ++i) {
      features.push_back({static_cast<int32_t>(t), static_cast<int32_t>(random() % (TSR_POOLING_MEAN + 1))});
    }
  }
  return features;
}

Options mixed_tables() {
  Options o;
  o.tables = {{7, 4}, {1, 16}, {40, 17}, {300, 32}, {0, 8}, {25, 64}, {90, 1}, {33, 128}, {20, 200}, {11, 300}};
  return o;
}
// Tables with widths that are multiples of four.
Options even_tables() {
  Options o = mixed_tables();
  for (TableShape& t : o.tables) t.dim = (t.dim + 3) / 4 * 4;
  return o;
}

struct Tolerance {
  float relative;
  float absolute;
};
Tolerance tolerance_of(const Options& o) {
  if (o.weight_dtype.code == kDLBfloat || o.output_dtype.code == kDLBfloat) return {2e-2f, 2e-2f};
  if (o.weight_dtype.bits == 16 || o.output_dtype.bits == 16) return {2e-3f, 1e-3f};
  return {2e-5f, 2e-5f};
}

// Runs a few steps of both kernels on random batches; compares outputs, weights' gradients, rows and states.
void compare_training(TestHost& host, const Options& o, uint64_t seed) {
  Random random(seed);
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
  Model gpu(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  reference.open().randomize(Random(seed + 1));
  gpu.open().randomize(Random(seed + 1));
  const auto [rtol, atol] = tolerance_of(o);
  for (int64_t step = 1; step <= 3; ++step) {
    const bool weighted = step == 2;
    const int64_t bags = step == 3 ? 0 : 1 + static_cast<int64_t>(random() % 9);
    const auto batch =
        random_batch(random, o, some_features(random, o), bags, 6, random() % 2 == 0 ? kI32 : kI64, weighted);
    const int64_t n = batch->ids->shape[0];
    Array want(o.output_dtype, batch->output_size), got(o.output_dtype, batch->output_size);
    Array want_weights(kF32, n), got_weights(kF32, n);
    tsr_context* a = reference.forward(*batch, want);
    tsr_context* b = gpu.forward(*batch, got);
    expect_near(values_of(got), values_of(want), rtol, atol, "output");
    const bool want_grad = random() % 2 == 0 || weighted;
    reference.backward(*batch, a, want_grad ? &want_weights : nullptr, 0.5, step);
    gpu.backward(*batch, b, want_grad ? &got_weights : nullptr, 0.5, step);
    expect_near(values_of(got_weights), values_of(want_weights), rtol, 10 * atol, "grad_weights");
    for (size_t t = 0; t < o.tables.size(); ++t) {
      expect_near(gpu.rows_of(static_cast<int>(t)), reference.rows_of(static_cast<int>(t)), rtol, atol,
                  o.optimizer + " table " + std::to_string(t) + " step " + std::to_string(step));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(GpuKernel, AgreesWithReferenceForEveryFusedOptimizer) {
  TestHost host;
  for (int warp_size : {32, 64}) {
    emulate(warp_size, 2);
    for (const char* optimizer : kFused) {
      for (uint64_t seed = 0; seed < 2; ++seed) {
        SCOPED_TRACE(std::string(optimizer) + " warp " + std::to_string(warp_size) + " seed " + std::to_string(seed));
        Options o = seed == 0 ? mixed_tables() : even_tables();
        o.take_optimizer(optimizer, seed == 0 ? "l2" : "decouple");
        o.max_gradient = seed == 1 ? 0.4 : 0;
        compare_training(host, o, 10 * seed + 1);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(host.live_bytes, 0);
}

TEST(GpuKernel, AgreesWithReferenceForHalfAndBFloat16) {
  TestHost host;
  emulate(32, 2);
  for (DLDataType rows : {kF32, kF16, kBF16}) {
    for (DLDataType out : {kF32, kF16, kBF16}) {
      for (const Options& tables : {mixed_tables(), even_tables()}) {
        SCOPED_TRACE("bits " + std::to_string(rows.bits) + " code " + std::to_string(rows.code) + " to bits " +
                     std::to_string(out.bits) + " code " + std::to_string(out.code));
        Options o = tables;
        o.take_optimizer("exact_rowwise_adagrad");
        o.weight_dtype = rows;
        o.output_dtype = out;
        compare_training(host, o, 77);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Rows occur so often that several units and blocks sum their gradient, and the sort has several tiles.
Options few_rows() {
  Options o;
  o.tables = {{1, 8}, {3, 16}, {20000, 8}};
  o.optimizer = "exact_rowwise_adagrad";
  return o;
}
std::unique_ptr<Batch> long_batch(const Options& o, uint64_t seed) {
  Random random(seed);
  return random_batch(
      random, o,
      {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}, {2, TSR_POOLING_SUM}, {1, TSR_POOLING_NONE}, {2, TSR_POOLING_MEAN}},
      150, 12, kI64, false);
}

TEST(GpuKernel, RowsThatOccurOften) {
  TestHost host;
  for (int warp_size : {32, 64}) {
    emulate(warp_size, 2);
    const Options o = few_rows();
    Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
    Model gpu(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
    reference.open().randomize(Random(5));
    gpu.open().randomize(Random(5));
    const auto batch = long_batch(o, 3);
    ASSERT_GT(batch->ids->shape[0], 4000) << "several tiles";
    Array want(kF32, batch->output_size), got(kF32, batch->output_size);
    reference.backward(*batch, reference.forward(*batch, want), nullptr, 0.01, 1);
    gpu.backward(*batch, gpu.forward(*batch, got), nullptr, 0.01, 1);
    expect_near(values_of(got), values_of(want), 2e-5f, 2e-5f, "output");
    for (int t = 0; t < 3; ++t) expect_near(gpu.rows_of(t), reference.rows_of(t), 1e-4f, 2e-5f, "rows");
  }
}

// Blocks and threads may run in any order, on any number of processors.
TEST(GpuKernel, TheSameBitsInAnyOrder) {
  std::vector<std::vector<float>> first;
  for (int workers : {1, 2, 3}) {
    TestHost host;
    emulate(32, workers, static_cast<uint64_t>(workers));
    const Options o = few_rows();
    Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
    model.open().randomize(Random(5));
    const auto batch = long_batch(o, 4);
    Array output(kF32, batch->output_size);
    model.backward(*batch, model.forward(*batch, output), nullptr, 1, 1);
    std::vector<std::vector<float>> results{values_of(output)};
    for (int t = 0; t < 3; ++t) results.push_back(model.rows_of(t));
    if (first.empty()) first = results;
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(std::memcmp(results[i].data(), first[i].data(), 4 * first[i].size()), 0) << workers << ", result " << i;
    }
  }
}

// Unfused: row gradients equal those of the reference, and apply() is the optimizer's update. "lamb" has no device
// form, so its rows go to the host and back.
TEST(GpuKernel, RowGradientsAgreeAndApplyUpdates) {
  TestHost host;
  emulate(32, 2);
  for (const char* optimizer : {"exact_rowwise_adagrad", "lamb", "adam"}) {
    for (const Options& tables : {few_rows(), mixed_tables()}) {
      SCOPED_TRACE(optimizer);
      Options o = tables;
      o.take_optimizer(optimizer);
      o.compute_kernel = "dense";
      Model gpu(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
      Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
      Random random(9);
      const auto batch = o.tables.size() == 3 ? long_batch(o, 4)
                                              : random_batch(random, o, some_features(random, o), 5, 6, kI32, false);
      for (Model* model : {&gpu, &reference}) model->open().randomize(Random(9));
      const auto got = gpu.apply_gradients(*batch, 0.25), want = reference.apply_gradients(*batch, 0.25);
      for (size_t t = 0; t < o.tables.size(); ++t) {
        EXPECT_EQ(got[t].rows, want[t].rows);
        expect_near(got[t].values, want[t].values, 1e-4f, 2e-5f, "values");
        expect_near(gpu.rows_of(static_cast<int>(t)), reference.rows_of(static_cast<int>(t)), 1e-4f, 2e-5f, "rows");
      }
    }
  }
}

// Training of 26 tables on a stream of the emulated device, the same batch at every step.
struct DeviceTraining {
  DeviceTraining() {
    emulate(32, 2);
    host.device_alloc = [](uint64_t bytes, tsr_stream on) {
      void* memory = nullptr;
      EXPECT_EQ(emulatorMallocAsync(&memory, bytes, static_cast<emulatorStream_t>(on)), emulatorSuccess);
      return memory;
    };
    host.device_free = [](void* memory, tsr_stream on) {
      emulatorFreeAsync(memory, static_cast<emulatorStream_t>(on));
    };
    Options o;
    std::vector<FeatureShape> features;
    for (int t = 0; t < 26; ++t) {
      o.tables.push_back({40 + int64_t{1000} * t, 8});
      features.push_back({t, TSR_POOLING_SUM});
    }
    o.optimizer = "exact_rowwise_adagrad";
    model = std::make_unique<Model>(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
    model->config.device = {kDLExtDev, 0};
    model->open();
    Random random(2);
    batch = random_batch(random, o, features, 16, 4, kI64, false);
    output = std::make_unique<Array>(kF32, batch->output_size);
    for (Array* a : {batch->ids.get(), batch->offsets.get(), batch->grad_output.get(), output.get()}) {
      a->tensor.device = model->config.device;  // the emulator's kernels reach the host's memory
    }
    EXPECT_EQ(emulatorStreamCreateWithFlags(&stream, emulatorStreamNonBlocking), emulatorSuccess);
  }
  ~DeviceTraining() {
    model->api->close(std::exchange(model->instance, nullptr));
    emulatorStreamDestroy(stream);
  }
  void step() {
    tsr_context* context = nullptr;
    Error error;
    EXPECT_EQ(model->api->forward(model->instance, &batch->lookup, &output->tensor, stream, &context, &error), TSR_OK)
        << error.message;
    const tsr_backward args = model->args_of(*batch, nullptr, 1, 1);
    EXPECT_EQ(model->api->backward(model->instance, context, &args, stream, &error), TSR_OK) << error.message;
    model->api->release(model->instance, context);
  }
  TestHost host;
  std::unique_ptr<Model> model;
  std::unique_ptr<Batch> batch;
  std::unique_ptr<Array> output;
  emulatorStream_t stream = nullptr;
};

// After warm-up, nothing is allocated, copied or waited for.
TEST(GpuKernel, AStepHasFewLaunchesAndNothingElse) {
  DeviceTraining training;
  training.step();
  const emulator::Counters before = emulator::counters();
  const int64_t allocations = training.host.allocations;
  training.step();
  const emulator::Counters after = emulator::counters();
  EXPECT_LE(after.launches - before.launches, 12u);
  EXPECT_GE(after.launches - before.launches, 2u) << "the count sees the plugin";
  EXPECT_EQ(after.copies, before.copies);
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  EXPECT_EQ(training.host.allocations, allocations);
}

TEST(GpuKernel, AStepOfFixedSizesIsCapturedIntoAGraph) {
  DeviceTraining stepped, graphed;
  for (int i = 0; i < 5; ++i) stepped.step();
  for (int i = 0; i < 2; ++i) graphed.step();
  emulatorGraph_t recorded = nullptr;
  emulatorGraphExec_t graph = nullptr;
  ASSERT_EQ(emulatorStreamBeginCapture(graphed.stream, emulatorStreamCaptureModeThreadLocal), emulatorSuccess);
  graphed.step();
  ASSERT_EQ(emulatorStreamEndCapture(graphed.stream, &recorded), emulatorSuccess);
  ASSERT_EQ(emulatorGraphInstantiate(&graph, recorded, 0), emulatorSuccess);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(emulatorGraphLaunch(graph, graphed.stream), emulatorSuccess);
  for (int t : {0, 2}) EXPECT_EQ(graphed.model->rows_of(t), stepped.model->rows_of(t));
  EXPECT_NE(stepped.model->rows_of(0), std::vector<float>(360, 0.0f)) << "weights and state have changed";
  emulatorGraphExecDestroy(graph);
  emulatorGraphDestroy(recorded);
}

// Two tables read the same ids, like column shards on one rank: there are more entries than ids.
TEST(GpuKernel, FeaturesMayShareTheirIds) {
  TestHost host;
  emulate(32, 2);
  Options o;
  o.tables = {{50, 8}, {50, 12}};
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
  Model gpu(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  Random random(3);
  const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_SUM}}, 40, 5, kI64, false);
  for (tsr_lookup_feature& f : batch->raw_features) f.first_offset = 0;
  for (Model* model : {&reference, &gpu}) {
    model->open().randomize(Random(9));
    Array output(kF32, batch->output_size);
    model->backward(*batch, model->forward(*batch, output), nullptr, 1, 1);
  }
  for (int t = 0; t < 2; ++t) expect_near(gpu.rows_of(t), reference.rows_of(t), 1e-5f, 1e-5f, "rows");
}

TEST(GpuKernel, ReadsNamedRows) {
  TestHost host;
  emulate(32, 2);
  for (DLDataType dtype : {kF32, kF16, kBF16}) {
    Options o;
    o.tables = {{50, 12}, {0, 4}};
    o.compute_kernel = "dense";
    o.optimizer = "partial_rowwise_adam";  // a state per element and one per row
    o.weight_dtype = dtype;
    Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
    model.open().randomize(Random(2));
    const std::vector<int64_t> wanted = {49, 0, 7, 7, 31};
    EXPECT_EQ(model.named_rows_of(0, wanted), model.rows_among(0, wanted, model.rows_of(0)));
  }
}

TEST(GpuKernel, ImportRefusesWhatDoesNotFit) {
  TestHost host;
  emulate(32, 2);
  expect_unknown_row_refused(host, TESSERA_KERNEL_EMULATOR, "emulator");
}

TEST(GpuKernel, ConfigsThatCannotBeServedAreRefusedWithTheReason) {
  TestHost host;
  emulate(32, 2);
  expect_bad_configs_refused(host, TESSERA_KERNEL_EMULATOR, "emulator",
                             {{"\"lamb\" has no fused form on a GPU", [](Options& o) { o.optimizer = "lamb"; }},
                              {"which hands the gradients out", [](Options& o) { o.optimizer = "lars_sgd"; }}});
  Options o;
  o.tables = {{3, 4}};
  Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  Error error;
  model.config.device = {kDLExtDev, 7};
  EXPECT_EQ(model.supports(error), TSR_UNIMPLEMENTED);
  EXPECT_NE(std::string(error.message).find("no emulated device 7"), std::string::npos) << error.message;
}

TEST(GpuKernel, BatchesThatCannotBeServedAreRefusedWithTheReason) {
  TestHost host;
  emulate(32, 2);
  Options o;
  o.tables = {{3, 4}};
  Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  model.open();
  Random random(1);
  const auto refusal = [&](const std::function<void(Batch&)>& change) {
    auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}}, 4, 3, kI64, false);
    change(*batch);
    Array output(kF32, batch->output_size);
    Error error;
    EXPECT_NE(model.api->forward(model.instance, &batch->lookup, &output.tensor, nullptr, nullptr, &error), TSR_OK);
    return std::string(error.message);
  };
  EXPECT_NE(refusal([](Batch& b) { b.raw_features[0].pooling = TSR_POOLING_MAX; }).find("MAX pooling is not served"),
            std::string::npos);
  EXPECT_NE(refusal([](Batch& b) { b.raw_features[0].table = 1; }).find("table 1 does not fit"), std::string::npos);
  EXPECT_NE(refusal([](Batch& b) { b.raw_features[0].bags = 5; }).find("last offset 5"), std::string::npos);
  EXPECT_NE(refusal([](Batch& b) { b.raw_features[0].output_offset = 1; }).find("end of output"), std::string::npos);
  EXPECT_NE(refusal([](Batch& b) {
              b.ids->tensor.device = {kDLCUDA, 0};
            }).find("ids lie on device type"),
            std::string::npos);
}

// The emulator claims 100 GB/s and 4 MiB of cache, see gpu/runtime.h.
tsr_workload million_ids() {
  tsr_workload work{};
  work.struct_size = sizeof(work);
  work.rows = 10'000'000;
  work.dim = 128;
  work.ids = 1e6;
  work.bags = 1e5;
  return work;
}

TEST(GpuKernel, EstimatesByTheBytesThatItMoves) {
  TestHost host;
  Options o;
  o.optimizer = "exact_rowwise_adagrad";
  Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  const tsr_workload work = million_ids();
  const tsr_estimate e = model.estimate(work);
  EXPECT_EQ(e.bytes, uint64_t{10'000'000} * (512 + 4));
  const double least = 1e6 * 512 / 100e9;  // reads its rows at the memory's speed
  EXPECT_GT(e.forward_seconds, least);
  EXPECT_LT(e.forward_seconds, 2 * least);
  EXPECT_GT(e.backward_seconds, 2 * least);  // rows are read and written
  EXPECT_LT(e.backward_seconds, 6 * least);

  const auto faster = [&](const tsr_workload& w, Model& m) {
    const tsr_estimate f = m.estimate(w);
    EXPECT_LT(f.forward_seconds, e.forward_seconds);
    EXPECT_LT(f.backward_seconds, e.backward_seconds);
  };
  tsr_workload less = work;
  less.ids = 5e5;
  faster(less, model);
  less = work;
  less.distinct = 1e5;  // repeated rows are still in the cache
  faster(less, model);
  less = work;
  less.rows = 1000;
  faster(less, model);
  less = work;
  less.reuse_bytes = 1 << 20;
  faster(less, model);
  o.weight_dtype = kF16;
  Model half(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  faster(work, half);
  o = {};
  o.optimizer = "adam";
  Model adam(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  EXPECT_GT(adam.estimate(work).backward_seconds, e.backward_seconds);
}

TEST(GpuKernel, EstimatesByAMachinesFiguresWhereThereAreAny) {
  TestHost host;
  Options o;
  Model model(host, TESSERA_KERNEL_EMULATOR, "emulator", o);
  const tsr_row_cost cost{512, 1e9, 1e-6, 2e-6, 0, 0, 0};
  const tsr_machine machine{sizeof(tsr_machine), 0, 1, sizeof(tsr_row_cost), &cost, 0, 0};
  tsr_workload work = million_ids();
  work.machine = &machine;
  EXPECT_NEAR(model.estimate(work).forward_seconds, 1.0, 1e-9);
  EXPECT_NEAR(model.estimate(work).backward_seconds, 2.0, 1e-9);
}

}  // namespace
}  // namespace tessera_cpu::test
