// Compares the cpu kernel with the reference kernel, both loaded as the core loads them.
#include <fstream>
#include <functional>
#include <map>
#include <regex>

#include "test_refusals.h"

namespace tessera_cpu::test {
namespace {

const char* const kIsas[] = {"avx512", "avx2", "portable"};
const char* const kOptimizers[] = {"exact_sgd", "exact_adagrad",        "exact_rowwise_adagrad", "adam",
                                   "lamb",      "partial_rowwise_adam", "partial_rowwise_lamb",  "lars_sgd"};

bool runs_here(TestHost& host, const std::string& isa) {
  const Part part(TESSERA_KERNEL_CPU, "cpu", host, "{}", isa);
  EXPECT_TRUE(part.code == TSR_OK || part.code == TSR_UNAVAILABLE) << part.message;
  return part.code == TSR_OK;
}

std::vector<FeatureShape> some_features(Random& random, const Options& o, int most_pooling) {
  std::vector<FeatureShape> features;
  for (size_t t = 0; t < o.tables.size(); ++t) {
    const int readers = 1 + static_cast<int>(random() % 2);
    for (int i = 0; i < readers; ++i) {
      features.push_back(
          {static_cast<int32_t>(t), static_cast<int32_t>(random() % static_cast<uint64_t>(most_pooling + 1))});
    }
  }
  return features;
}

// Runs a few steps of both kernels on random batches of all poolings, and compares them after each.
void compare_training(TestHost& host, const Options& o, const std::string& isa, uint64_t seed) {
  Random random(seed);
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o, "portable");
  Model fast(host, TESSERA_KERNEL_CPU, "cpu", o, isa);
  reference.open().randomize(Random(seed + 1));
  fast.open().randomize(Random(seed + 1));
  const bool narrow = o.weight_dtype.bits == 16 || o.output_dtype.bits == 16;
  const bool bf16 = o.weight_dtype.code == kDLBfloat || o.output_dtype.code == kDLBfloat;
  const float rtol = bf16 ? 2e-2f : narrow ? 2e-3f : 2e-5f, atol = bf16 ? 2e-2f : narrow ? 1e-3f : 2e-5f;
  for (int64_t step = 1; step <= 3; ++step) {
    const bool weighted = step == 2;
    const auto features = some_features(random, o, weighted ? TSR_POOLING_MEAN : TSR_POOLING_MAX);
    const auto batch = random_batch(random, o, features, step == 3 ? 0 : 1 + static_cast<int64_t>(random() % 9), 6,
                                    random() % 2 == 0 ? kI32 : kI64, weighted);
    const int64_t n = batch->ids->shape[0];
    Array want(o.output_dtype, batch->output_size), got(o.output_dtype, batch->output_size);
    Array want_weights(kF32, n), got_weights(kF32, n);
    tsr_context* a = reference.forward(*batch, want);
    tsr_context* b = fast.forward(*batch, got);
    expect_near(values_of(got), values_of(want), rtol, atol, "output");
    const bool want_grad = random() % 2 == 0 || weighted;
    reference.backward(*batch, a, want_grad ? &want_weights : nullptr, 0.5, step);
    fast.backward(*batch, b, want_grad ? &got_weights : nullptr, 0.5, step);
    expect_near(values_of(got_weights), values_of(want_weights), rtol, 10 * atol, "grad_weights");
    for (size_t t = 0; t < o.tables.size(); ++t) {
      expect_near(fast.rows_of(static_cast<int>(t)), reference.rows_of(static_cast<int>(t)), rtol, atol,
                  o.optimizer + " table " + std::to_string(t) + " step " + std::to_string(step));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

Options mixed_tables() {
  Options o;
  o.tables = {{7, 4}, {1, 16}, {40, 17}, {300, 32}, {0, 8}, {25, 64}, {90, 1}, {33, 128}, {20, 200}, {11, 264}};
  return o;
}

TEST(CpuKernel, AgreesWithReferenceForEveryOptimizer) {
  TestHost host;
  for (const char* isa : kIsas) {
    if (!runs_here(host, isa)) continue;
    for (const char* optimizer : kOptimizers) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE(std::string(isa) + " " + optimizer + " seed " + std::to_string(seed));
        host.threads = 1 + static_cast<uint32_t>(seed);
        Options o = mixed_tables();
        o.take_optimizer(optimizer);
        o.max_gradient = seed == 1 ? 0.4 : 0;
        compare_training(host, o, isa, 10 * seed + 1);
        if (HasFatalFailure()) return;
      }
    }
  }
  EXPECT_EQ(host.live_bytes, 0);
}

TEST(CpuKernel, AgreesWithReferenceForHalfAndBFloat16) {
  TestHost host;
  for (const char* isa : kIsas) {
    if (!runs_here(host, isa)) continue;
    for (DLDataType rows : {kF32, kF16, kBF16}) {
      for (DLDataType out : {kF32, kF16, kBF16}) {
        SCOPED_TRACE(std::string(isa) + " bits " + std::to_string(rows.bits) + " code " + std::to_string(rows.code));
        Options o = mixed_tables();
        o.take_optimizer("exact_rowwise_adagrad");
        o.weight_dtype = rows;
        o.output_dtype = out;
        compare_training(host, o, isa, 77);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Tables that are large enough to be divided into buckets, chunks and runs.
Options large_tables() {
  Options o;
  o.tables = {{5000, 16}, {100000, 8}, {3, 32}};
  o.optimizer = "exact_rowwise_adagrad";
  return o;
}
std::unique_ptr<Batch> large_batch(const Options& o, bool weighted, uint64_t seed) {
  Random random(seed);
  return random_batch(random, o,
                      {{0, TSR_POOLING_SUM},
                       {1, weighted ? TSR_POOLING_MEAN : TSR_POOLING_SUM},
                       {0, TSR_POOLING_MEAN},
                       {2, TSR_POOLING_SUM},
                       {1, TSR_POOLING_NONE}},
                      3000, 12, kI64, weighted);
}

TEST(CpuKernel, SameBitsForAnyNumberOfThreads) {
  for (bool weighted : {false, true}) {
    std::vector<std::vector<float>> first;
    for (uint32_t threads : {1u, 2u, 3u}) {
      TestHost host;
      host.threads = threads;
      const Options o = large_tables();
      Model model(host, TESSERA_KERNEL_CPU, "cpu", o);
      model.open().randomize(Random(5));
      std::vector<std::vector<float>> results;
      for (int64_t step = 1; step <= 2; ++step) {
        const auto batch = large_batch(o, weighted, static_cast<uint64_t>(step));
        Array output(kF32, batch->output_size), grad_weights(kF32, batch->ids->shape[0]);
        tsr_context* context = model.forward(*batch, output);
        model.backward(*batch, context, weighted ? &grad_weights : nullptr, 1, step);
        results.push_back(values_of(output));
        results.push_back(values_of(grad_weights));
      }
      for (int t = 0; t < 3; ++t) results.push_back(model.rows_of(t));
      if (first.empty()) {
        first = results;
        continue;
      }
      for (size_t i = 0; i < results.size(); ++i) {
        ASSERT_EQ(std::memcmp(results[i].data(), first[i].data(), 4 * first[i].size()), 0)
            << threads << " threads, result " << i;
      }
    }
  }
}

TEST(CpuKernel, AgreesWithReferenceOnLargeBatches) {
  TestHost host;
  host.threads = 3;
  const Options o = large_tables();
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
  Model fast(host, TESSERA_KERNEL_CPU, "cpu", o);
  reference.open().randomize(Random(5));
  fast.open().randomize(Random(5));
  const auto batch = large_batch(o, false, 3);
  Array want(kF32, batch->output_size), got(kF32, batch->output_size);
  reference.backward(*batch, reference.forward(*batch, want), nullptr, 1, 1);
  fast.backward(*batch, fast.forward(*batch, got), nullptr, 1, 1);
  expect_near(values_of(got), values_of(want), 1e-5f, 1e-5f, "output");
  for (int t = 0; t < 3; ++t) expect_near(fast.rows_of(t), reference.rows_of(t), 1e-4f, 1e-5f, "rows");
}

// Compares two steps on five tables, the third of which has two features, for several optimizers, types and numbers of
// threads.
void compare_two_steps(const std::vector<TableShape>& tables, int64_t bags) {
  for (const auto& [rows, optimizer] : {std::pair{kF32, "exact_rowwise_adagrad"},
                                        {kF32, "adam"},
                                        {kF32, "exact_sgd"},
                                        {kF16, "exact_rowwise_adagrad"}}) {
    for (uint32_t threads : {1u, 3u}) {
      SCOPED_TRACE(std::string(optimizer) + " bits " + std::to_string(rows.bits) + " threads " +
                   std::to_string(threads));
      TestHost host;
      host.threads = threads;
      Options o;
      o.tables = tables;
      o.optimizer = optimizer;
      o.optimizer_options = R"({"eps": 0.01})";
      o.weight_dtype = rows;
      Random random(11);
      const auto batch = random_batch(random, o,
                                      {{0, TSR_POOLING_SUM},
                                       {1, TSR_POOLING_NONE},
                                       {2, TSR_POOLING_SUM},
                                       {3, TSR_POOLING_MEAN},
                                       {4, TSR_POOLING_SUM},
                                       {2, TSR_POOLING_SUM}},
                                      bags, 6, threads == 1 ? kI32 : kI64, false);
      Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
      Model fast(host, TESSERA_KERNEL_CPU, "cpu", o);
      for (Model* m : {&reference, &fast}) m->open().randomize(Random(5));
      Array want(kF32, batch->output_size), got(kF32, batch->output_size);
      for (int64_t step = 1; step <= 2; ++step) {
        const double scale = step == 1 ? 1 : 0.5;
        reference.backward(*batch, reference.forward(*batch, want), nullptr, scale, step);
        fast.backward(*batch, fast.forward(*batch, got), nullptr, scale, step);
      }
      for (int t = 0; t < 5; ++t) {
        expect_near(fast.rows_of(t), reference.rows_of(t), rows.bits == 16 ? 2e-3f : 2e-5f,
                    rows.bits == 16 ? 1e-3f : 2e-5f, "table " + std::to_string(t));
      }
    }
  }
}

// Most rows occur once. They are updated without sorting, in lists longer than one call of the optimizer takes. Some
// gradients are used in place, and some are computed.
TEST(CpuKernel, RowsThatOccurOnceAgreeWithReference) {
  compare_two_steps({{15000, 16}, {15000, 32}, {29000, 64}, {15000, 128}, {15000, 24}}, 300);
}

// Each row occurs many times, so that gradients are summed without sorting. With three threads, tables are divided.
TEST(CpuKernel, TablesOfFewRowsAgreeWithReference) {
  compare_two_steps({{3, 16}, {700, 32}, {700, 64}, {700, 128}, {1500, 24}}, 2500);
}

TEST(CpuKernel, RowGradientsAgreeAndApplyIsTheFusedUpdate) {
  TestHost host;
  host.threads = 2;
  Options o = large_tables();
  Model fused(host, TESSERA_KERNEL_CPU, "cpu", o);
  o.compute_kernel = "dense";
  Model dense(host, TESSERA_KERNEL_CPU, "cpu", o);
  Model reference(host, TESSERA_KERNEL_REFERENCE, "reference", o);
  for (Model* m : {&fused, &dense, &reference}) m->open().randomize(Random(9));
  const auto batch = large_batch(o, false, 4);
  Array output(kF32, batch->output_size);
  fused.backward(*batch, fused.forward(*batch, output), nullptr, 0.25, 1);
  const auto got = dense.apply_gradients(*batch, 0.25), want = reference.apply_gradients(*batch, 0.25);
  for (int t = 0; t < 3; ++t) {
    EXPECT_EQ(got[t].rows, want[t].rows);
    expect_near(got[t].values, want[t].values, 1e-4f, 1e-5f, "values");
    EXPECT_EQ(dense.rows_of(t), fused.rows_of(t)) << "the same bits, table " << t;
  }
}

TEST(CpuKernel, NoAllocationAfterTheLargestBatch) {
  for (uint32_t threads : {1u, 3u}) {
    TestHost host;
    host.threads = threads;
    const Options o = large_tables();
    Model model(host, TESSERA_KERNEL_CPU, "cpu", o);
    const int64_t before_open = news_so_far();
    model.open();
    EXPECT_GT(news_so_far(), before_open) << "the count sees the plugin";
    model.randomize(Random(1));
    const auto batch = large_batch(o, false, 1);
    Array output(kF32, batch->output_size);
    model.backward(*batch, model.forward(*batch, output), nullptr, 1, 1);
    const int64_t before = host.allocations;
    const int64_t news = news_so_far();
    model.backward(*batch, model.forward(*batch, output), nullptr, 1, 2);
    const int64_t news_after = news_so_far();
    EXPECT_EQ(host.allocations, before);
    if (threads > 1) continue;  // the test host's threads allocate as well
    EXPECT_EQ(news_after, news);
  }
}

// Beside the tables and their states, training may use memory of at most a tenth of them, which is too little for a
// table's whole gradient.
TEST(CpuKernel, TrainingNeedsTablesStatesAndATenth) {
  for (const char* optimizer : {"exact_rowwise_adagrad", "adam"}) {
    for (uint32_t threads : {1u, 3u}) {
      SCOPED_TRACE(std::string(optimizer) + " threads " + std::to_string(threads));
      TestHost host;
      host.threads = threads;
      Options o;
      o.tables = {{40000, 64}, {40000, 64}, {40000, 64}};
      o.optimizer = optimizer;
      Model model(host, TESSERA_KERNEL_CPU, "cpu", o);
      model.open();
      int64_t tables_and_states = 0;
      for (uint32_t t = 0; t < 3; ++t) {
        const tsr_kernel_stats stats = model.stats(t);
        EXPECT_EQ(stats.weight_bytes, 40000u * 64 * 4);
        tables_and_states += static_cast<int64_t>(stats.weight_bytes + stats.state_bytes);
      }
      Random random(2);
      const auto batch = random_batch(
          random, o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_MEAN}, {2, TSR_POOLING_SUM}, {2, TSR_POOLING_NONE}}, 1500,
          10, kI64, false);
      Array output(kF32, batch->output_size);
      const int64_t before = bytes_asked_so_far();
      for (int64_t step = 1; step <= 3; ++step) {
        model.backward(*batch, model.forward(*batch, output), nullptr, 1, step);
      }
      EXPECT_GE(host.most_bytes, tables_and_states);
      EXPECT_LE(host.most_bytes + bytes_asked_so_far() - before, tables_and_states / 10 * 11);
    }
  }
}

// A NaN in a gradient must reach the row; the clamp must not turn it into a number.
TEST(CpuKernel, MaxGradientLetsNaNThrough) {
  TestHost host;
  Options o;
  o.tables = {{4, 19}};
  o.max_gradient = 0.5;
  const auto poisoned = [&](const char* path, const std::string& id, const std::string& isa) {
    Model model(host, path, id, o, isa);
    model.open();
    Random random(3);
    const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}}, 1, 0, kI64, false);
    Array ids(kI64, 1), offsets(kI64, 2), output(kF32, 19);
    ids.set(0, 2);
    offsets.set(1, 1);
    batch->lookup.ids = &ids.tensor;
    batch->lookup.offsets = &offsets.tensor;
    for (int64_t i = 0; i < 19; ++i) batch->grad_output->set(i, i == 17 || i == 3 ? std::nanf("") : 7);
    model.backward(*batch, model.forward(*batch, output), nullptr, 1, 1);
    return model.rows_of(0);
  };
  std::vector<std::vector<float>> all = {poisoned(TESSERA_KERNEL_REFERENCE, "reference", "portable")};
  for (const char* isa : kIsas) {
    if (runs_here(host, isa)) all.push_back(poisoned(TESSERA_KERNEL_CPU, "cpu", isa));
  }
  for (const auto& rows : all) {
    for (int64_t i = 0; i < 19; ++i) {
      const float value = rows[static_cast<size_t>(int64_t{2} * 19 + i)];
      const bool poison = i == 17 || i == 3;
      EXPECT_EQ(std::isnan(value), poison) << i;
      if (!poison) {
        EXPECT_FLOAT_EQ(value, -0.0625f * 0.5f);
      }
    }
  }
}

// Reads rows by their ids, in any order, with repeats.
TEST(Kernels, ReadNamedRows) {
  TestHost host;
  for (DLDataType dtype : {kF32, kF16, kBF16}) {
    Options o;
    o.tables = {{50, 12}, {0, 4}};
    o.optimizer = "partial_rowwise_adam";
    o.weight_dtype = dtype;
    for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_KERNEL_REFERENCE, "reference"}}) {
      Model model(host, path, id, o);
      model.open().randomize(Random(2));
      Random random(3);
      const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}, {1, TSR_POOLING_SUM}}, 5, 4, kI64, false);
      Array output(kF32, batch->output_size);
      model.backward(*batch, model.forward(*batch, output), nullptr, 1, 1);
      const std::vector<float> all = model.rows_of(0);
      const std::vector<int64_t> wanted = {49, 0, 7, 7, 31};
      EXPECT_EQ(model.named_rows_of(0, wanted), model.rows_among(0, wanted, all)) << id;
      EXPECT_EQ(model.rows_of(0), all) << id;
      Array ids(kI64, 1), weights(kF32, 12);
      ids.data<int64_t>()[0] = 50;
      tsr_rows rows{sizeof(tsr_rows), 0, 0, 0, 1, &ids.tensor, &weights.tensor, nullptr, nullptr};
      Error error;
      EXPECT_EQ(model.api->read_rows(model.instance, 0, &rows, &error), TSR_OUT_OF_RANGE);
      EXPECT_NE(std::string(error.message).find("has no row 50"), std::string::npos) << error.message;
    }
  }
}

TEST(Kernels, MaxSendsItsGradientToTheFirstLargest) {
  TestHost host;
  for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_KERNEL_REFERENCE, "reference"}}) {
    Options o;
    o.tables = {{3, 2}};
    Model model(host, path, id, o);
    model.open().set_rows(0, {1, -2, 1, -1, 0, -1});
    Random random(0);
    const auto batch = random_batch(random, o, {{0, TSR_POOLING_MAX}}, 2, 0, kI32, false);
    batch->ids = std::make_unique<Array>(kI32, 3);
    for (int i = 0; i < 3; ++i) batch->ids->set(i, i);
    for (int i : {1, 2}) batch->offsets->set(i, 3);  // the second bag is empty
    for (int i = 0; i < 4; ++i) batch->grad_output->set(i, 16);
    batch->lookup.ids = &batch->ids->tensor;
    Array output(kF32, 4), grad_weights(kF32, 3);
    tsr_context* context = model.forward(*batch, output);
    EXPECT_EQ(values_of(output), (std::vector<float>{1, -1, 0, 0}));
    model.backward(*batch, context, &grad_weights, 1, 1);
    EXPECT_EQ(values_of(grad_weights), (std::vector<float>{16, -16, 0}));
    EXPECT_EQ(model.rows_of(0), (std::vector<float>{0, -2, 1, -2, 0, -1})) << id;
  }
}

TEST(Kernels, ImportRefusesUnknownRowsAndChangesNothing) {
  TestHost host;
  expect_unknown_row_refused(host, TESSERA_KERNEL_CPU, "cpu");
  expect_unknown_row_refused(host, TESSERA_KERNEL_REFERENCE, "reference");
}

TEST(Kernels, ConfigsThatCannotBeServedAreRefusedWithTheReason) {
  TestHost host;
  expect_bad_configs_refused(host, TESSERA_KERNEL_CPU, "cpu");
  expect_bad_configs_refused(host, TESSERA_KERNEL_REFERENCE, "reference");
}

TEST(Kernels, BadBatchesAreRefused) {
  TestHost host;
  Options o;
  o.tables = {{3, 2}};
  for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_KERNEL_REFERENCE, "reference"}}) {
    Model model(host, path, id, o);
    model.open();
    const auto refused = [&](const char* words, const std::function<void(Batch&)>& change) {
      Random random(1);
      const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}}, 4, 3, kI64, false);
      change(*batch);
      Array output(kF32, batch->output_size);
      Error error;
      EXPECT_EQ(model.api->forward(model.instance, &batch->lookup, &output.tensor, nullptr, nullptr, &error),
                TSR_INVALID_ARGUMENT);
      EXPECT_NE(std::string(error.message).find(words), std::string::npos) << error.message;
    };
    refused("table 1", [](Batch& b) { b.raw_features[0].table = 1; });
    refused("last offset", [](Batch& b) { b.raw_features[0].bags = 5; });
    refused("end of output", [](Batch& b) { b.raw_features[0].output_offset = 1; });
    refused("ids must be", [](Batch& b) { b.ids->tensor.dtype = kF32; });
    refused("MAX pooling takes no weights", [](Batch& b) {
      b.raw_features[0].pooling = TSR_POOLING_MAX;
      b.lookup.weights = &b.weights->tensor;
    });
  }
}

TEST(Kernels, InferenceKeepsNoStateAndNoContext) {
  TestHost host;
  Options o;
  o.tables = {{30, 8}};
  o.optimizer = "adam";
  o.train = false;
  for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_KERNEL_REFERENCE, "reference"}}) {
    Model model(host, path, id, o);
    model.open();
    tsr_kernel_stats stats{};
    stats.struct_size = sizeof(stats);
    Error error;
    ASSERT_EQ(model.api->stats(model.instance, 0, &stats, &error), TSR_OK);
    EXPECT_EQ(stats.weight_bytes, 30u * 8 * 4);
    EXPECT_EQ(stats.state_bytes, 0u);
    Random random(1);
    const auto batch = random_batch(random, o, {{0, TSR_POOLING_SUM}}, 4, 3, kI64, false);
    Array output(kF32, batch->output_size);
    EXPECT_EQ(model.forward(*batch, output), nullptr);
    ASSERT_EQ(model.api->stats(model.instance, 0, &stats, &error), TSR_OK);
    EXPECT_EQ(stats.lookups, static_cast<uint64_t>(batch->ids->shape[0]));
    tsr_context* context = nullptr;
    EXPECT_EQ(model.api->forward(model.instance, &batch->lookup, &output.tensor, nullptr, &context, &error),
              TSR_FAILED_PRECONDITION);
  }
}

TEST(Isa, AnUnknownNameIsRefusedNamingTheThree) {
  TestHost host;
  for (const auto& [path, id] : {std::pair{TESSERA_KERNEL_CPU, "cpu"}, {TESSERA_OPTIMIZERS, "adam"}}) {
    const Part part(path, id, host, "{}", "sse9");
    EXPECT_EQ(part.code, TSR_INVALID_ARGUMENT);
    EXPECT_EQ(part.message, "TESSERA_ISA=sse9 is not avx512, avx2 or portable");
  }
  EXPECT_TRUE(runs_here(host, "portable"));
}

TEST(Optimizers, WrongOptionsAreRefused) {
  TestHost host;
  const std::pair<const char*, const char*> cases[] = {
      {R"({"learning_rte": 1})", "learning_rate"},
      {R"({"eps": -1})", "\"eps\" is -1"},
      {R"({"beta1": 1})", "below 1"},
      {R"({"weight_decay_mode": "L3"})", "none, l2 or decouple"},
      {R"({"eta": "big"})", "must be a number"},
  };
  for (const char* optimizer : kOptimizers) {
    for (const auto& [options, words] : cases) {
      const Part part(TESSERA_OPTIMIZERS, optimizer, host, options, "");
      EXPECT_EQ(part.code, TSR_INVALID_ARGUMENT);
      EXPECT_NE(part.message.find(words), std::string::npos) << part.message;
    }
  }
  const std::tuple<const char*, const char*, const char*> decays[] = {
      // These options would have no effect.
      {"none", R"({"weight_decay": 0.5})", "\"weight_decay\" is 0.5, but this optimizer has no weight decay"},
      {"none", R"({"weight_decay": 0.5, "weight_decay_mode": "l2"})",
       "this optimizer has no weight decay: leave it out"},
      {"none", R"({"weight_decay_mode": "l2"})", "has no choice of modes"},
      {"exact_sgd", R"({"weight_decay": -0.5, "weight_decay_mode": "l2"})", "must be at least 0"},
      {"exact_sgd", R"({"weight_decay": 0.5})", "set it to l2 or decouple"},
      {"exact_adagrad", R"({"weight_decay": 0.5, "weight_decay_mode": "none"})", "set it to l2 or decouple"},
      {"sgd", R"({"dampening": 0.5})", "\"dampening\" is 0.5, but it needs momentum"},
      {"sgd", R"({"momentum": 0.9, "nesterov": true, "dampening": 0.5})", "and not Nesterov's"},
      {"adadelta", R"({"rho": 1})", "\"rho\" is 1 but must be at least 0 and below 1"},
      {"adadelta", R"({"eps": 0})", "\"eps\" is 0, with which no row would ever move"},
      {"adadelta", R"({"beta1": 0.9})", "unknown option \"beta1\""},
      {"exact_rowwise_adagrad", R"({"weight_decay": 0.5})", "set it to l2 or decouple"},
      {"adam", R"({"weight_decay": 0.5, "weight_decay_mode": "l2"})", "has no choice of modes"},
      {"lars_sgd", R"({"weight_decay": 0.5, "weight_decay_mode": "decouple"})", "has no choice of modes"},
  };
  for (const auto& [optimizer, options, words] : decays) {
    const Part part(TESSERA_OPTIMIZERS, optimizer, host, options, "");
    EXPECT_EQ(part.code, TSR_INVALID_ARGUMENT) << optimizer << options;
    EXPECT_NE(part.message.find(words), std::string::npos) << part.message;
  }
  for (const char* optimizer : kOptimizers) {
    Options o;
    o.take_optimizer(optimizer);
    const Part part(TESSERA_OPTIMIZERS, optimizer, host, o.optimizer_options, "");
    EXPECT_EQ(part.code, TSR_OK) << part.message;
  }
  const Part part(TESSERA_OPTIMIZERS, "adam", host, R"({"learning_rate": 0.25})", "");
  ASSERT_EQ(part.code, TSR_OK) << part.message;
  const auto* api = static_cast<const tsr_optimizer*>(part.raw.component->api);
  EXPECT_EQ(api->learning_rate(part.raw.self), 0.25);
}

// Returns a row of weights after two updates. The gradients differ, because with equal ones Adam's moments would not
// matter.
std::vector<float> updated(TestHost& host, const std::string& optimizer, const std::string& options) {
  const Part part(TESSERA_OPTIMIZERS, optimizer, host, options, "portable");
  EXPECT_EQ(part.code, TSR_OK) << part.message;
  const auto* api = static_cast<const tsr_optimizer*>(part.raw.component->api);
  constexpr int64_t kDim = 4;
  std::vector<float> weight = {0.5f, -1, 2, 0.25f}, first(kDim), second(kDim);
  const std::vector<float> grads[] = {{0.1f, -0.2f, 0.3f, 1}, {-0.4f, 0.1f, 0.5f, 0.2f}};
  float* const states[] = {first.data(), second.data()};
  for (int64_t step = 1; step <= 2; ++step) {
    const tsr_update update{sizeof(tsr_update), 0, api->learning_rate(part.raw.self), step};
    api->update_row(part.raw.self, &update, kDim, weight.data(), grads[step - 1].data(), states);
  }
  return weight;
}

// Expects the recorded results of three steps of torch.optim.Adadelta (PyTorch 2). The row of 4 columns is repeated in
// a row of 20, and in a row of 16, which has a loop of its own.
TEST(Optimizers, AdadeltaIsPyTorchs) {
  TestHost host;
  const std::vector<float> start = {0.5f, -1, 2, 0.25f};
  const std::vector<float> grads[] = {{0.1f, -0.2f, 0.3f, 1}, {-0.4f, 0.1f, 0.5f, 0.2f}, {0, 0.3f, -0.1f, 2}};
  struct Recorded {
    const char* options;
    std::vector<float> weights, square_avg, acc_delta;
  };
  const Recorded all[] = {{R"({})",
                           {0.50118953f, -1.00292134f, 1.99400377f, 0.241867319f},
                           {0.0152100008f, 0.0131400004f, 0.0307900012f, 0.484600008f},
                           {2.51238089e-06f, 2.79975734e-06f, 2.28006775e-06f, 2.52512677e-06f}},
                          {R"({"learning_rate": 0.5, "eps": 1e-3, "weight_decay": 0.5})",
                           {0.44227919f, -0.899960339f, 1.85919321f, 0.117468648f},
                           {0.0184816625f, 0.0548625179f, 0.404630572f, 0.547675669f},
                           {0.00176186569f, 0.00132308027f, 0.00240212795f, 0.0025571445f}}};
  const auto often = [](const std::vector<float>& of, size_t times) {
    std::vector<float> out;
    for (size_t i = 0; i < times; ++i) out.insert(out.end(), of.begin(), of.end());
    return out;
  };
  for (const char* isa : kIsas) {
    if (!runs_here(host, isa)) continue;
    for (const Recorded& want : all) {
      for (const size_t times : {1, 4, 5}) {
        const Part part(TESSERA_OPTIMIZERS, "adadelta", host, want.options, isa);
        ASSERT_EQ(part.code, TSR_OK) << part.message;
        const auto* api = static_cast<const tsr_optimizer*>(part.raw.component->api);
        std::vector<float> weight = often(start, times), squares(weight.size()), steps(weight.size());
        float* const states[] = {squares.data(), steps.data()};
        for (int64_t step = 1; step <= 3; ++step) {
          const tsr_update update{sizeof(tsr_update), 0, api->learning_rate(part.raw.self), step};
          const std::vector<float> grad = often(grads[step - 1], times);
          api->update_row(part.raw.self, &update, static_cast<int64_t>(weight.size()), weight.data(), grad.data(),
                          states);
        }
        expect_near(weight, often(want.weights, times), 1e-6f, 1e-7f, "weights");
        expect_near(squares, often(want.square_avg, times), 1e-6f, 1e-9f, "square_avg");
        expect_near(steps, often(want.acc_delta, times), 2e-6f, 1e-12f, "acc_delta");
      }
    }
  }
}

// Tests the weight decay of docs/config.md, for optimizers that have none in FBGEMM: in every instruction set, for
// widths with and without a loop of their own, for one row and several.
TEST(Optimizers, DecayIsAddedToTheGradientOrTakenOffTheWeight) {
  TestHost host;
  constexpr double kRate = 0.25, kDecay = 0.5, kEps = 0.01;
  Random random(5);
  std::normal_distribution<float> normal;
  for (const char* isa : kIsas) {
    if (!runs_here(host, isa)) continue;
    for (const std::string name : {"exact_sgd", "exact_adagrad"}) {
      for (const std::string mode : {"l2", "decouple"}) {
        const Part part(TESSERA_OPTIMIZERS, name.c_str(), host,
                        R"({"eps": 0.01, "weight_decay": 0.5, "weight_decay_mode": ")" + mode + "\"}", isa);
        ASSERT_EQ(part.code, TSR_OK) << part.message;
        const auto* api = static_cast<const tsr_optimizer*>(part.raw.component->api);
        for (const int64_t dim : {1, 16, 33, 64}) {
          std::vector<float> w(static_cast<size_t>(2 * dim)), g(w.size()), s(w.size(), 0.0f);
          for (float& x : w) x = normal(random);
          std::vector<double> want(w.begin(), w.end()), sums(w.size(), 0.0);
          float* const weights[] = {w.data(), w.data() + dim};
          const float* const grads[] = {g.data(), g.data() + dim};
          float* const states[] = {s.data(), s.data() + dim};
          for (int64_t step = 1; step <= 3; ++step) {
            for (float& x : g) x = normal(random);
            const tsr_update update{sizeof(tsr_update), 0, kRate, step};
            api->update_rows(part.raw.self, &update, dim, 2, weights, grads, states);
            for (size_t i = 0; i < w.size(); ++i) {
              const double q = g[i] + (mode == "l2" ? kDecay * want[i] : 0);
              sums[i] += q * q;
              want[i] -= kRate * (mode == "l2" ? 0 : kDecay) * want[i];
              want[i] -= kRate * q / (name == "exact_sgd" ? 1 : std::sqrt(sums[i]) + kEps);
              ASSERT_NEAR(w[i], want[i], 1e-4) << isa << ' ' << name << ' ' << mode << ' ' << dim << ' ' << step;
            }
          }
        }
      }
    }
  }
}

// Checks that an optimizer reads exactly the options that docs/config.md lists for it, with the defaults given there.
TEST(Optimizers, OptionsAreThoseOfThePage) {
  std::ifstream page(std::string(TESSERA_SOURCE_DIR) + "/docs/config.md");
  std::map<std::string, std::string> listed, defaults;
  constexpr size_t npos = std::string::npos;
  std::smatch row;
  for (std::string line; std::getline(page, line) && line != "## Keys";) {
    if (std::regex_match(line, row, std::regex(R"(\| `(\w+)` \| ([^|]*) \|)"))) listed[row[1]] = row[2];
    if (std::regex_match(line, row, std::regex(R"(\| `(\w+)` \| `([^`]*)` \|.*\|)"))) defaults[row[1]] = row[2];
  }
  ASSERT_EQ(listed.size(), std::size(kOptimizers) + 1) << "and none";
  ASSERT_EQ(defaults.size(), 8u);
  std::string all;
  for (const auto& [option, value] : defaults) all += (all.empty() ? "{\"" : ", \"") + option + "\": " + value;
  TestHost host;
  for (const std::string optimizer : kOptimizers) {
    EXPECT_EQ(updated(host, optimizer, all + "}"), updated(host, optimizer, "{}")) << "defaults of " << optimizer;
    const auto reads = [&](const std::string& option) { return listed[optimizer].find("`" + option + "`") != npos; };
    // Uses decay, because norms would otherwise cancel a factor that is the same for a whole row.
    std::string decay = reads("weight_decay") ? R"({"weight_decay": 0.1)" : "{\"learning_rate\": 0.01";
    if (reads("weight_decay_mode")) decay += R"(, "weight_decay_mode": "l2")";
    const std::vector<float> usual = updated(host, optimizer, decay + "}");
    EXPECT_EQ(usual != updated(host, optimizer, "{}"), reads("weight_decay")) << optimizer;
    for (const std::string option : {"eps", "beta1", "beta2", "eta", "momentum"}) {
      const bool differs = updated(host, optimizer, decay + ", \"" + option + "\": 0.5}") != usual;
      EXPECT_EQ(differs, reads(option)) << optimizer << ' ' << option;
    }
  }
}

// All finite halves are unchanged after conversion to float and back, and ties round to even.
TEST(Half, RoundTripsAndRounds) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    EXPECT_TRUE((half & 0x7c00) == 0x7c00 || float_to_half(half_to_float(half)) == half) << half;
    EXPECT_TRUE((half & 0x7f80) == 0x7f80 || float_to_bfloat16(bfloat16_to_float(half)) == half) << half;
  }
  EXPECT_EQ(float_to_half(1 + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_half(1 + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(0x1p-25f), 0);
  EXPECT_EQ(float_to_half(1.5f * 0x1p-25f), 1);
  EXPECT_EQ(float_to_bfloat16(1 + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(1 + 3 * 0x1p-8f), 0x3f82);
}

}  // namespace
}  // namespace tessera_cpu::test
