// Plugins that are wrong, slow or crash: they are noticed and named before they can do harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <nlohmann/json.hpp>

#include "config/test_refusal.h"
#include "small_job.h"
#include "spawn.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"
#include "tessera_program.h"

namespace tessera::test::odd_plugins_test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kRows = 100003;  // no two process ids differ by a multiple of it

ShardedEmbeddingBagCollection shard(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                                    const std::string& sharder) {
  const std::vector<EmbeddingBagConfig> tables = {
      {.name = "film", .num_embeddings = kRows, .embedding_dim = 4, .feature_names = {"film"}}};
  ShardingRequest how{.sharding_type = sharder};
  const auto plan = construct_module_sharding_plan(runtime, tables, {{"film", how}},
                                                   Topology::of(group->world_size(), group->local_world_size(), "cpu"));
  return EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
}

// The messages of both ranks up to the lookup of the first batch.
std::vector<std::string> first_step_with(const std::string& sharder) {
  return cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_ODD_SHARDER}});
    const auto group = ProcessGroup::connect(runtime, where);
    return test::refusal([&] {
      auto sharded = shard(runtime, group, sharder);
      sharded
          .forward(KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from<int64_t>({0, 5, 1, 6}),
                                                        Tensor::from<int32_t>({2, 2})))
          .wait();
    });
  });
}

struct Wrong {
  const char* fault;
  const char* said;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.fault; }

class WrongSharder : public testing::TestWithParam<Wrong> {};

TEST_P(WrongSharder, IsNamedOnEveryRankBeforeItTrains) {
  for (const std::string& said : first_step_with(str_cat("test.odd?shift=7&fault=", GetParam().fault))) {
    EXPECT_THAT(said, AllOf(HasSubstr("sharder test.odd, table \"film\""), HasSubstr(GetParam().said)));
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, WrongSharder,
                         testing::Values(Wrong{"many_on_one_row", "must be the inverse of the other"},
                                         Wrong{"wrong_inverse", "must be the inverse of the other"},
                                         Wrong{"leaves_outputs",
                                               "route takes id 3 to row -1 of row set -1, which does not exist"},
                                         Wrong{"leaves_ids", "to id -1, but the table has 100003 rows"},
                                         Wrong{"other_layout_on_each_rank", "differs from that on rank 0"},
                                         Wrong{"other_on_each_rank", "on rank 0: it must give the same on every rank"}),
                         [](const auto& info) { return std::string(info.param.fault); });

TEST(Sharders, ARightOneOfThisKindIsFine) {
  for (const std::string& said : first_step_with("test.odd?shift=7")) EXPECT_EQ(said, "no error");
}

TEST(Sharders, OptionsBehindTheNameReachThem) {
  const Runtime runtime({.plugin_path = {TESSERA_ODD_SHARDER}});
  const auto first_row = [&](const std::string& sharder) {
    const auto sharded = shard(runtime, ProcessGroup::connect(runtime, RankEnvironment{}, {}), sharder);
    return sharded.table_rows(sharded.held_shards()[0], 0, 1)[0];
  };
  EXPECT_EQ(first_row("test.odd"), 0);
  EXPECT_EQ(first_row("test.odd?shift=3"), kRows - 3);
  EXPECT_THROW(first_row("test.odd?shift=three"), Error);
}

class OddJob : public testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more, const char* plugins = TESSERA_ODD_SHARDER) {
    const std::string config = folder_.write("job.toml", small_job({.samples = 320, .test_samples = 32, .epochs = 1}) +
                                                             str_cat("[plugins]\npath = [\"", plugins, "\"]\n"));
    more.insert(more.begin() + 1, {"--config", config});
    more.insert(more.begin(), tessera_path());
    return more;
  }
  static void without_core_file() {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
  }
  Finished run(const Arguments& more, const std::function<void()>& in_child = without_core_file) {
    return run_program(arguments(more), 60, in_child);
  }

  TestDirectory folder_;
};

TEST_F(OddJob, OptionsOfShardersStandInTheConfig) {
  const std::string report = folder_.file("report.json");
  const auto losses = [&](const std::string& sharding) {
    succeed(run({"train", "--nproc", "2", "--set", "report.json=" + report, "--set", sharding}));
    return json::parse(contents(report));
  };
  const json odd = losses("table_defaults.sharding=[\"test.odd?shift=5\"]"),
             row = losses("table_defaults.sharding=row_wise");
  EXPECT_THAT(odd["plan"].dump(), HasSubstr("\"test.odd?shift=5\""));
  ASSERT_EQ(odd["losses"].size(), row["losses"].size());
  for (size_t i = 0; i < row["losses"].size(); ++i)
    EXPECT_NEAR(odd["losses"][i].get<double>(), row["losses"][i].get<double>(), 1e-4) << i;
  EXPECT_THAT(run({"plan", "--set", "table_defaults.sharding=test.odd?shfit=5"}).output,
              HasSubstr("test.odd: unknown option \"shfit\""));
  const Finished absent = run({"plan", "--set", "table_defaults.sharding=test.od?shift=5"});
  EXPECT_THAT(absent.output, HasSubstr("table c0: no plugin provides tessera.sharder/1 \"test.od\"; the nearest is"));
}

TEST_F(OddJob, AWrongSharderEndsTheJob) {
  expect_refused(run({"train", "--nproc", "2", "--set", "table_defaults.sharding=test.odd?fault=many_on_one_row"}),
                 HasSubstr("sharder test.odd, table"), 1);
}

TEST_F(OddJob, ACrashNamesThePluginAndWhatItWasAsked) {
  for (const char* fault : {"propose_crashes", "propose_overflows_the_stack"}) {
    const std::vector<std::string> plan = {"plan", "--set", str_cat("table_defaults.sharding=test.odd?fault=", fault)};
    const char* expected = "crashed (SIGSEGV) in a plugin: test.odd (tessera.sharder/1), propose, \"";
    const Finished named = run(plan);
    EXPECT_NE(named.status, 0);
    EXPECT_THAT(named.output, HasSubstr(expected)) << fault;
    const Finished silent = run(plan, [] {
      without_core_file();
      setenv("TESSERA_CRASH_REPORT", "0", 1);
    });
    EXPECT_NE(silent.status, 0);
    EXPECT_THAT(silent.output, Not(HasSubstr("in a plugin"))) << fault;
  }
}

TEST_F(OddJob, ACrashOfATransportThatIsClosedNamesIt) {
  const Finished done =
      run_program(arguments({"train", "--nproc", "2", "--set", "comm.backend=test.damaging?crashes_in_close=true"},
                            TESSERA_TEST_PLUGINS),
                  60, without_core_file);
  EXPECT_NE(done.status, 0);
  EXPECT_THAT(done.output, HasSubstr("crashed (SIGSEGV) in a plugin: test.damaging (tessera.collective/1), close"));
}

TEST_F(OddJob, APluginThatKeepsTheProgramWaitingIsNamed) {
  Program plan(arguments({"plan", "--set", "table_defaults.sharding=test.odd?fault=propose_never_ends"}));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string said;
  while (std::chrono::steady_clock::now() < deadline && said.find('\n') == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    said = plan.output();
  }
  EXPECT_THAT(said, AllOf(HasSubstr(" s for a plugin: test.odd (tessera.sharder/1), propose, \""),
                          HasSubstr(str_cat("process ", plan.pid(), " has waited "))));
}

TEST_F(OddJob, WhoComputesALayerIsSaid) {
  const std::string report = folder_.file("report.json");
  const auto run = [&](const Arguments& more) {
    const std::string done = succeed(run_program(arguments(more, TESSERA_ZERO_MLP), 60));
    return done;
  };
  EXPECT_THAT(
      run({"train", "--max-steps", "2", "--set", "report.json=" + report}),
      AllOf(HasSubstr("\nlayer mlp: computed by test.mlp instead of mlp\n"), Not(HasSubstr("dot_interaction"))));
  const json expected = {{"component", "test.mlp"}, {"instead_of", {"mlp"}}};
  EXPECT_EQ(json::parse(contents(report))["layers"]["mlp"], expected);
  EXPECT_THAT(run({"plugins"}), HasSubstr("\nlayer mlp: computed by test.mlp instead of mlp\n"));
  EXPECT_EQ(json::parse(run({"plugins", "--json"}))["layers"]["cpu"]["mlp"], expected);
}

TEST_F(OddJob, WhoComputesALayerAnswersToo) {
  const std::string checkpoint = folder_.file("checkpoint"), model = folder_.file("model");
  const std::string scores = folder_.file("scores.csv");
  const auto run = [&](const Arguments& more, const char* plugins) {
    succeed(run_program(arguments(more, plugins), 60));
  };
  run({"train", "--max-steps", "2", "--save", checkpoint}, TESSERA_ODD_SHARDER);
  run({"quantize", "--load", checkpoint, "--save", model, "--weights", "fp32"}, TESSERA_ODD_SHARDER);
  const std::vector<std::string> predict{"predict", "--model", model, "--part", "test", "--output", scores};
  run(predict, TESSERA_ODD_SHARDER);
  EXPECT_THAT(contents(scores), Not(HasSubstr(",0.5\n")));
  run(predict, TESSERA_ZERO_MLP);
  const std::string zeros = contents(scores);
  EXPECT_EQ(std::count(zeros.begin(), zeros.end(), '\n'), 33);
  size_t halves = 0;
  for (size_t at = zeros.find(",0.5\n"); at != std::string::npos; at = zeros.find(",0.5\n", at + 1)) ++halves;
  EXPECT_EQ(halves, 32u) << zeros;
}

}  // namespace
}  // namespace tessera::test::odd_plugins_test
