// One rank plans for all: planning may take longer than an exchange's deadline; ranks may ask for different plans, or
// bring different ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "config/test_refusal.h"
#include "planner/skewed_tables.h"
#include "spawn.h"
#include "tessera/distributed_model_parallel.h"
#include "tessera/sharding.h"

namespace tessera::test::collective_plan_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The exception of collective_plan() on every rank, or "planned N tables".
std::vector<std::string> outcomes(double timeout_s,
                                  const std::function<void(int rank, PlannerModule&, PlannerOptions&)>& change) {
  return cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, {.timeout_s = timeout_s});
    SkewedTables tables;
    tables.count = 3;
    tables.topology = Topology::of(2, 2, "cpu");
    auto [modules, options] = tables.make();
    change(where.rank, modules.front(), options);
    try {
      const ShardingPlan plan = collective_plan(runtime, modules, options, *group);
      return str_cat("planned ", plan.at("").tables().size(), " tables");
    } catch (const Error& e) {
      return e.what();
    }
  });
}

void expect_everywhere(const std::vector<std::string>& texts, const testing::Matcher<std::string>& matcher) {
  EXPECT_EQ(texts.size(), 2u);
  for (const std::string& text : texts) EXPECT_THAT(text, matcher);
}

// TorchRec's search on thousands of tables works for seconds, until its limit.
TEST(CollectivePlan, MayTakeLongerThanTheDeadline) {
  constexpr double kDeadline = 1.5;
  const auto start = std::chrono::steady_clock::now();
  expect_everywhere(outcomes(kDeadline,
                             [](int, PlannerModule& module, PlannerOptions& options) {
                               SkewedTables tables;
                               tables.count = 4000;
                               tables.topology = Topology::of(2, 2, "cuda");
                               const auto [modules, skewed] = tables.make();
                               module = modules.front();
                               options = skewed;
                               options.search = PlannerSearch::kTorchrec;
                               options.time_limit_s = 8;
                             }),
                    "planned 4000 tables");
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::duration<double>(kDeadline));
}

TEST(CollectivePlan, NamesTheDifference) {
  expect_everywhere(outcomes(30, [](int, PlannerModule&, PlannerOptions&) {}), "planned 3 tables");
  expect_everywhere(
      outcomes(30,
               [](int rank, PlannerModule&, PlannerOptions& options) {
                 if (rank == 1) options.constraints["t1"].forbidden_ranks = {0};
               }),
      AllOf(HasSubstr("rank 1"), HasSubstr("constraints of table \"t1\""), HasSubstr("forbidden_ranks 0")));
  expect_everywhere(outcomes(30, [](int rank, PlannerModule& module,
                                    PlannerOptions&) { module.tables[2].num_embeddings = 10 + rank; }),
                    AllOf(HasSubstr("rank 1"), HasSubstr("t2"), HasSubstr("11 x ")));
  expect_everywhere(
      outcomes(30,
               [](int rank, PlannerModule& module, PlannerOptions&) {
                 if (rank == 1) module.kind = PlannerModule::Kind::kEmbeddingCollection;
               }),
      AllOf(HasSubstr("rank 0 has table \"t0\""), HasSubstr("rank 1 has table \"t0\""), HasSubstr(" sequence, ")));
}

TEST(CollectivePlan, NamesADifferenceInHowToPlan) {
  expect_everywhere(outcomes(30, [](int rank, PlannerModule&,
                                    PlannerOptions& options) { options.kernel = rank == 0 ? "auto" : "cpu"; }),
                    AllOf(HasSubstr("rank 0 has "), HasSubstr("kernel auto"), HasSubstr("kernel cpu")));
  expect_everywhere(
      outcomes(30, [](int rank, PlannerModule&, PlannerOptions& options) { options.time_limit_s = 20 + rank; }),
      AllOf(HasSubstr("time limit 20 s"), HasSubstr("time limit 21 s")));
  expect_everywhere(
      outcomes(30, [](int rank, PlannerModule&,
                      PlannerOptions& options) { options.storage_reservation.percentage = 0.25 + rank * 0.25; }),
      AllOf(HasSubstr("storage reservation of kind 0, 0.25"), HasSubstr("0.5")));
}

TEST(CollectivePlan, WhyThereIsNoneIsKnownEverywhere) {
  expect_everywhere(outcomes(30,
                             [](int, PlannerModule&, PlannerOptions& options) {
                               options.constraints["t0"].keep_apart = options.constraints["t1"].keep_apart = {"x"};
                               options.constraints["t0"].ranks = options.constraints["t1"].ranks = {1};
                             }),
                    HasSubstr("t0 and t1 must be kept apart (x)"));
}

TEST(GivenPlan, ThatIsNotTheOtherRanksIsRefusedEverywhere) {
  expect_everywhere(
      cli::run_in_ranks(2, 1, 60,
                        [](const RankEnvironment& where) -> std::string {
                          const Runtime runtime;
                          const auto group = ProcessGroup::connect(runtime, where);
                          EmbeddingBagConfig table{
                              .name = "t", .num_embeddings = 12, .embedding_dim = 8, .feature_names = {"f"}};
                          const EmbeddingBagCollection described(runtime, {.tables = {table}, .device = kMeta});
                          ShardingRequest request{.sharding_type = where.rank == 0 ? "table_wise" : "row_wise"};
                          EmbeddingModuleShardingPlan tables;
                          tables.add("t", make_sharding(runtime, table, request, Topology::of(2, 1, "cpu")));
                          DistributedModelParallelOptions options;
                          options.plan.emplace();
                          options.plan->world_size = 2;
                          options.plan->modules.emplace_back("sparse", std::move(tables));
                          return test::refusal(
                              [&] {
                                const DistributedModelParallel model(
                                    runtime, {.bag_collections = {{"sparse", &described}}}, group, options);
                              },
                              "accepted");
                        }),
      HasSubstr("rank 1 has another plan than rank 0"));
}

}  // namespace
}  // namespace tessera::test::collective_plan_test
