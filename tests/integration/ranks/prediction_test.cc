// Predicted and measured times: calibration to a file, plan versus actual after training, steps sampled table by table,
// and messages about wrong input. No speed is asserted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "job_file.h"
#include "tessera/machine.h"
#include "tessera/sharded_modules.h"
#include "tessera/step_figures.h"
#include "tessera_program.h"

namespace tessera::test::prediction_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using json = nlohmann::json;

constexpr const char* kJob = R"(
job = {device = "cpu", threads = 1}
comm = {backend = "tcp"}
model = {embedding_dim = 8, bottom_mlp = [16, 8], top_mlp = [16, 1]}
table_defaults = {optimizer = {name = "exact_rowwise_adagrad", learning_rate = 0.05}}
data = {columns = 3, rows = [400, 300, 20], dense = 4, pooling = 2, samples = 640, test_samples = 64, batch = 32}
)";

class Prediction : public testing::Test, protected JobFile {
 protected:
  Prediction() : JobFile(kJob) {}
  json report_of(int ranks, const Arguments& more) {
    output_ = succeed(train(ranks, more));
    return report();
  }

  std::string output_;
};

TEST_F(Prediction, TrainEndsWithPlanVersusActual) {
  const json report = report_of(2, {"--verbose", "--set", "table_defaults.sharding=table_wise"});
  const json& c = report.at("plan_versus_actual");
  EXPECT_EQ(c.at("figures"), "typical");
  EXPECT_GT(c.at("step_us").at("predicted"), 0);
  EXPECT_GT(c.at("step_us").at("measured"), 0);
  EXPECT_GT(c.at("sampled_steps"), 0);
  ASSERT_EQ(c.at("ranks").size(), 2u);
  for (const json& rank : c.at("ranks")) {
    for (const char* stage : {"route", "lookup", "table update", "dense forward", "dense update"}) {
      EXPECT_GT(rank.at("stages_us").at(stage).at("predicted"), 0) << stage;
      EXPECT_GT(rank.at("stages_us").at(stage).at("measured"), 0) << stage;
    }
    // Whole tables and bags of equal length, so the sent bytes are known exactly.
    const json& bytes = rank.at("bytes").at("in_host");
    EXPECT_GT(bytes.at("measured"), 0);
    EXPECT_NEAR(bytes.at("predicted").get<double>(), bytes.at("measured").get<double>(), 1e-6);
    EXPECT_EQ(rank.at("bytes").at("across_hosts").at("measured"), 0);
  }
  ASSERT_EQ(c.at("tables").size(), 3u);
  for (const json& t : c.at("tables")) {
    EXPECT_GT(t.at("lookup_us").at("measured"), 0) << t;
    EXPECT_GT(t.at("update_us").at("predicted"), 0) << t;
  }
  EXPECT_THAT(output_, HasSubstr("plan versus actual (figures: typical)"));
}

// The result is the last line, after a few others; the tables are printed only on request.
TEST_F(Prediction, TrainEndsWithItsResult) {
  const auto last_line = [&] {
    const size_t start = output_.rfind('\n', output_.size() - 2) + 1;
    return output_.substr(start);
  };
  report_of(2, {"--set", "table_defaults.sharding=table_wise"});
  EXPECT_THAT(last_line(), StartsWith("test: AUC 0."));
  EXPECT_THAT(output_, HasSubstr("plan: 3 tables table_wise on 2 ranks\n"));
  EXPECT_LE(std::count(output_.begin(), output_.end(), '\n'), 6) << output_;
  report_of(2, {"--verbose"});
  EXPECT_THAT(last_line(), StartsWith("test: AUC 0."));
  for (const char* table :
       {"param | sharding type", "stage  ", "bytes per step", "rank 0, plan/actual", "table, us per step"})
    EXPECT_THAT(output_, HasSubstr(table));
}

TEST_F(Prediction, CalibrationIsAFileThatPlansAndJobsTake) {
  const std::string file = folder_.file("machine.json");
  const Finished done = run_tessera({"calibrate", "--quick", "-n", "2", "--save", file});
  if (done.status == 1 && done.output.find("nothing is saved; run it when the machine is idle") != std::string::npos)
    GTEST_SKIP() << "other programs take the processors";
  ASSERT_EQ(done.status, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("inside the host (tcp, 2 ranks)"));
  const Machine m = load_machine(file);
  EXPECT_TRUE(m.measured);
  EXPECT_EQ(m.ranks, 2);
  ASSERT_TRUE(m.intra_host);
  EXPECT_FALSE(m.inter_host);
  ASSERT_NE(m.kernel("cpu"), nullptr);
  for (const tsr_row_cost& row : m.kernel("cpu")->rows) EXPECT_GT(row.update, 0);
  const json report = report_of(2, {"--set", "planner.topology=" + file});
  EXPECT_THAT(report.at("plan_versus_actual").at("figures").get<std::string>(), HasSubstr("measured"));

  expect_refused({"plan", "--config", path(), "--world-size", "4", "--local-world-size", "2", "--topology", file},
                 HasSubstr("no figures of exchanges between hosts; for 2 hosts start tessera calibrate"), 1);
  expect_refused({"plan", "--config", path(), "--compute-device", "cuda", "--topology", file},
                 HasSubstr("was measured on cpu but the plan is for cuda"), 1);
}

TEST_F(Prediction, WrongInputGetsASentence) {
  const std::string newer = folder_.write("newer.json", R"({"tessera_machine": 7})");
  const auto plan = [&](const Arguments& more) {
    return test::refused(run_tessera(Arguments{"plan", "--config", path()} + more));
  };
  EXPECT_THAT(plan({"--topology", "/no/such/file"}), HasSubstr("cannot read the topology file /no/such/file"));
  EXPECT_THAT(plan({"--topology", path()}), HasSubstr(" is not JSON: line 2, byte 2: unexpected 'j'"));
  EXPECT_THAT(plan({"--topology", newer}), HasSubstr("its format is 7 and this program reads 2"));
  EXPECT_THAT(plan({"--cost-model", "oracle"}), HasSubstr("there is no cost model \"oracle\"; known are"));
  EXPECT_THAT(plan({"--batch-size", "-3"}), HasSubstr("batch_size -3 is negative"));
  EXPECT_THAT(plan({"--time-limit", "-3"}), HasSubstr("a time limit of -3 s is negative"));
  EXPECT_THAT(plan({"--picture", "plan.svg"}), HasSubstr("the name must end with .html"));
  EXPECT_THAT(plan({"--picture", "/no/such/plan.html"}), HasSubstr("--picture: there is no directory /no/such"));
  expect_refused({"calibrate", "-n", "0"}, HasSubstr("-n takes 1 to 1024 ranks"));
}

TEST_F(Prediction, PlansAreExplainedAndDrawn) {
  const std::string picture = folder_.file("plan.html");
  const std::string done =
      succeed({"plan", "--config", path(), "--world-size", "2", "--explain", "c0", "--picture", picture});
  EXPECT_THAT(done, HasSubstr("Table c0 is sharded "));
  EXPECT_THAT(one_line(done), HasSubstr("The best alternative, "));
  EXPECT_THAT(contents(picture), HasSubstr("{\"title\":\"Sharding plan\""));
  EXPECT_THAT(contents(picture), HasSubstr("\"name\":\"c0\",\"sharding_type\":"));
}

// Adam's update depends on the number of steps done, so a step counted twice would be noticed.
TEST(SampledSteps, ChangeNoNumber) {
  const Runtime runtime;
  std::vector<EmbeddingBagConfig> tables(3);
  EmbeddingModuleShardingPlan plan;
  for (size_t t = 0; t < tables.size(); ++t) {
    tables[t].name = str_cat("t", t);
    tables[t].feature_names = {str_cat("f", t)};
    tables[t].num_embeddings = 30;
    tables[t].embedding_dim = 4;
    // The last table's gradients are handed out instead of being applied inside the kernel.
    plan.add(
        tables[t].name,
        {"table_wise", t == 2 ? "dense" : "fused", ParameterSharding::Combine::kConcat, false, {{30, 4, 0, 0, 0}}});
  }
  const auto trained = [&](int64_t every) {
    const ShardedModuleOptions options{.optimizer = {"adam", R"({"learning_rate": 0.1})", 0}};
    const auto group = ProcessGroup::connect(runtime, RankEnvironment{}, {});
    auto module = EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group);
    module.sample_shards(every);
    Tensor grad = Tensor::empty({4, 12});
    for (int64_t i = 0; i < grad.numel(); ++i) grad.data<float>()[i] = static_cast<float>(i % 5) - 2;
    for (int64_t step = 0; step < 9; ++step) {
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < 24; ++i) ids.push_back((i * 7 + step * i) % 30);
      const auto batch = KeyedJaggedTensor::from_lengths_sync(
          {"f0", "f1", "f2"}, Tensor::from(ids), Tensor::from<int32_t>({2, 2, 2, 2, 0, 4, 3, 1, 2, 2, 2, 2}));
      module.backward(module.forward(batch).wait(), grad);
      for (int64_t i = 0; i < step % 3; ++i) module.forward(batch, false, false).wait();  // evaluations do not count
    }
    EXPECT_EQ(module.sampled_steps(), every ? 9 / every : 0);
    const auto times = module.shard_times();
    EXPECT_EQ(times.size(), every ? 3u : 0u);
    for (const ShardTimes& t : times) {
      EXPECT_GT(t.lookup, 0) << t.shard.table;
      EXPECT_GT(t.update, 0) << t.shard.table;
    }
    std::vector<float> weights;
    for (const HeldShard& shard : module.held_shards()) {
      const auto values = module.weight(shard).to_vector<float>();
      weights.insert(weights.end(), values.begin(), values.end());
    }
    return weights;
  };
  const std::vector<float> never = trained(0);
  EXPECT_EQ(trained(1), never);
  EXPECT_EQ(trained(3), never);
}

// If nothing that trains is installed, a step is estimated only from figures.
TEST(Estimates, AreNotThoseOfAKernelThatOnlyInfers) {
  namespace fs = std::filesystem;
  const fs::path installed = fs::path(TESSERA_PROGRAM).parent_path().parent_path() / "lib/tessera/plugins-1";
  const TestDirectory folder;
  const fs::path here = fs::canonical(fs::path(folder.file("x")).parent_path());
  fs::copy_file(installed / "tessera_kernel_quant.so", here / "tessera_kernel_quant.so");
  const Runtime few({.plugin_path = {here.string()}, .default_path = false}), all;
  ASSERT_TRUE(few.has(TSR_KERNEL_KIND, "quant"));
  PlannerModule module{"m", PlannerModule::Kind::kEmbeddingBagCollection, {}, 0};
  EmbeddingBagConfig table{.name = "t", .num_embeddings = 100, .embedding_dim = 8, .feature_names = {"f"}};
  module.tables = {table};
  PlannerOptions options{.topology = Topology::of(1, 1, "cpu")};
  ShardingPlan plan;
  plan.world_size = plan.local_world_size = 1;
  EmbeddingModuleShardingPlan tables;
  tables.add("t", {"table_wise", "fused", ParameterSharding::Combine::kConcat, false, {{100, 8, 0, 0, 0}}});
  plan.modules = {{"m", tables}};
  EXPECT_EQ(predict_step(few, options, {module}, plan).kernel, "");
  EXPECT_NE(predict_step(all, options, {module}, plan).kernel, "");
}

}  // namespace
}  // namespace tessera::test::prediction_test
