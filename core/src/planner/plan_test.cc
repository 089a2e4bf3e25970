// Tests plans as texts and files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "config/test_replaced.h"
#include "planner/rank_rules.h"
#include "tessera/planner.h"
#include "tessera/sharding.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using Combine = ParameterSharding::Combine;
using test::replaced;

ShardingPlan example() {
  ShardingPlan plan{.world_size = 4, .local_world_size = 2, .compute_device = "cuda", .model_hash = "0123456789abcdef"};
  EmbeddingModuleShardingPlan tables;
  tables.add("film", {"row_wise",
                      "fused",
                      Combine::kSum,
                      false,
                      {{3, 8, 0, 0, 0}, {3, 8, 3, 0, 1}, {3, 8, 6, 0, 2}, {1, 8, 9, 0, 3}}});
  tables.add("user \"q\"", {"data_parallel",
                            "dense",
                            Combine::kDataParallel,
                            false,
                            {{2, 4, 0, 0, 0}, {2, 4, 0, 0, 1}, {2, 4, 0, 0, 2}, {2, 4, 0, 0, 3}}});
  tables.add("hashed", {"acme.stripe", "fused", Combine::kSum, true, {{5, 4, 0, 0, 3}, {4, 4, 0, 0, 1}}});
  plan.modules.emplace_back("sparse.a", std::move(tables));
  plan.modules.emplace_back("sparse.b", EmbeddingModuleShardingPlan{});
  return plan;
}

std::string error_of(const std::string& text) {
  return test::refusal(
      Code::kInvalidArgument, [&] { (void)ShardingPlan::from_json(text); }, "");
}

TEST(Plan, ComesBackFromItsFile) {
  const ShardingPlan plan = example();
  EXPECT_EQ(ShardingPlan::from_json(plan.json()), plan) << plan.json();
}

TEST(Plan, CopiesBesideCutRowsComeBackWithTheCookie) {
  ShardingPlan plan;
  plan.world_size = plan.local_world_size = 2;
  EmbeddingModuleShardingPlan tables;
  tables.add("t", {"acme.hot",
                   "fused",
                   Combine::kSum,
                   true,
                   {{3, 4, 0, 0, 0, true}, {3, 4, 0, 0, 1, true}, {5, 4, 0, 0, 0}, {4, 4, 0, 0, 1}},
                   INT64_MIN + 7});
  plan.modules.emplace_back("", std::move(tables));
  EXPECT_EQ(ShardingPlan::from_json(plan.json()), plan) << plan.json();
  EXPECT_EQ(plan.modules[0].second.at("t").distinct(), (std::vector<size_t>{0, 2, 3}));
  EXPECT_THAT(error_of(replaced(plan.json(), R"({"sizes":[3,4],"offsets":[0,0],"rank":1,"replica":true})",
                                R"({"sizes":[2,4],"offsets":[0,0],"rank":1,"replica":true})")),
              HasSubstr("shard 1 is not a copy of the first replica"));
}

TEST(Plan, Looks) {
  const ShardingPlan plan = example();
  EXPECT_EQ(plan.placement(3), "rank:3/cuda:1");
  EXPECT_EQ(plan.at("sparse.a").at("film").ranks(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_THROW((void)plan.at("sparse"), Error);
  EXPECT_THROW((void)plan.at("sparse.a").at("song"), Error);
  EXPECT_THAT(plan.str(), HasSubstr("module: sparse.a\n\n"));
  EXPECT_THAT(plan.str(), HasSubstr("\n param   | sharding type | compute kernel |    ranks    \n"));
  EXPECT_THAT(plan.str(), HasSubstr("film   | [9, 0]        | [1, 8]      | rank:3/cuda:1"));
  EXPECT_THAT(plan.str(), HasSubstr("\n\nmodule: sparse.b"));
}

TEST(Plan, FileErrorsNameThePlace) {
  const std::string good = example().json();
  EXPECT_EQ(error_of(good), "");
  EXPECT_THAT(error_of(good.substr(0, good.size() / 2)), HasSubstr("the sharding plan is not JSON: line "));
  EXPECT_THAT(error_of("[]"), HasSubstr("the sharding plan: it is not an object {...}"));
  EXPECT_THAT(error_of("{}"), HasSubstr("the sharding plan: tessera_plan is missing"));
  EXPECT_THAT(error_of(replaced(good, "\"tessera_plan\": 1", "\"tessera_plan\": 2")),
              HasSubstr("tessera_plan is 2; from 1 to 1 is expected"));
  EXPECT_THAT(error_of(replaced(good, "\"world_size\": 4", "\"world_size\": 0")),
              HasSubstr("world_size is 0; from 1 to"));
  EXPECT_THAT(error_of(replaced(good, "\"local_world_size\": 2", "\"local_world_size\": 3")), HasSubstr("multiple"));
  EXPECT_THAT(error_of(replaced(good, "\"world_size\"", "\"wold_size\"")),
              HasSubstr("has an unknown key \"wold_size\"; did you mean \"world_size\"?"));
  EXPECT_THAT(error_of(replaced(good, "\"combine\": \"sum\"", "\"combine\": \"add\"")),
              HasSubstr("modules[\"sparse.a\"].tables[\"film\"].combine is \"add\"; concat"));
  EXPECT_THAT(error_of(replaced(good, "\"rank\":3", "\"rank\":4")),
              HasSubstr("tables[\"film\"].shards[3].rank is 4; from 0 to 3"));
  EXPECT_THAT(error_of(replaced(good, "\"rank\":3", "\"rank\":18446744073709551615")),
              HasSubstr("a whole number is expected"));
  EXPECT_THAT(error_of(replaced(good, "[3,8],\"offsets\":[3,0]", "[3,8],\"offsets\":[2,0]")), HasSubstr("overlap"));
  EXPECT_THAT(error_of(replaced(good, "[3,8],\"offsets\":[3,0]", "[2,8],\"offsets\":[3,0]")), HasSubstr("uncovered"));
  EXPECT_THAT(error_of(replaced(good, "[3,8]", "[-3,8]")), HasSubstr("shards[0].sizes has -3; sizes from 0"));
  EXPECT_THAT(error_of(replaced(good, "[3,8]", "[3]")), HasSubstr("[rows, columns]"));
  EXPECT_THAT(error_of(replaced(good, "sparse.b", "sparse.a")), HasSubstr("module \"sparse.a\" is there twice"));
  EXPECT_THAT(error_of(replaced(good, "\"hashed\"", "\"film\"")), HasSubstr("table film is there twice"));
  EXPECT_THAT(error_of(replaced(good, "\"routed\": true", "\"routed\": 1")),
              HasSubstr(".routed is 1; true or false is expected"));
}

TEST(Plan, MismatchWithAModelIsListed) {
  PlannerModule module{.path = "sparse.a",
                       .tables = {{.name = "film", .num_embeddings = 11, .embedding_dim = 8},
                                  {.name = "hashed", .num_embeddings = 9, .embedding_dim = 4},
                                  {.name = "song", .num_embeddings = 1, .embedding_dim = 4}}};
  const std::string text = plan_mismatch(example(), {module});
  EXPECT_THAT(text, HasSubstr("table film of module \"sparse.a\": the model has 11 x 8, the plan is for 10 x 8\n"));
  EXPECT_THAT(text, HasSubstr("table song of module \"sparse.a\": the plan lacks it\n"));
  EXPECT_THAT(text, HasSubstr("table user \"q\" of module \"sparse.a\": the plan has it, but the model does not\n"));
  EXPECT_THAT(text, HasSubstr("module \"sparse.b\": the plan has it, but the model does not\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("hashed")));
}

TEST(Plan, WhatSizesDoNotShowIsSeenByTheHash) {
  PlannerModule module{.path = "sparse", .tables = {{.name = "film", .num_embeddings = 10, .embedding_dim = 8}}};
  ShardingPlan plan{.model_hash = model_hash({module})};
  plan.modules.emplace_back("sparse", EmbeddingModuleShardingPlan{});
  plan.modules[0].second.add("film",
                             {"table_wise", "fused", ParameterSharding::Combine::kConcat, false, {{10, 8, 0, 0, 0}}});
  EXPECT_EQ(plan_mismatch(plan, {module}), "");
  module.tables[0].data_type = DType::kFloat16;
  EXPECT_THAT(plan_mismatch(plan, {module}), HasSubstr("data types, features or the order of tables"));
  plan.model_hash.clear();
  EXPECT_EQ(plan_mismatch(plan, {module}), "");
}

TEST(Plan, BrokenConstraintsAreListed) {
  PlannerModule module{.path = "sparse.a",
                       .tables = {{.name = "film", .num_embeddings = 10, .embedding_dim = 8},
                                  {.name = "user \"q\"", .num_embeddings = 2, .embedding_dim = 4},
                                  {.name = "hashed", .num_embeddings = 9, .embedding_dim = 4}}};
  const auto broken = [&](const auto& change) {
    std::map<std::string, ParameterConstraints> constraints;
    change(constraints["film"], constraints["hashed"]);
    return broken_constraints(example(), {module}, constraints);
  };
  using C = ParameterConstraints;
  EXPECT_EQ(broken([](C&, C&) {}), "");
  EXPECT_EQ(broken([](C& film, C& hashed) {  // the plan keeps all of these
              film.sharding_types = {"table_wise", "row_wise"}, film.compute_kernels = {"fused"};
              film.max_shards = 4, film.min_partition = 8, film.ranks = {0, 1, 2, 3};
              hashed.forbidden_ranks = {0, 2}, hashed.min_partition = 64, hashed.keep_together = "one";
              film.keep_apart = {"own"}, film.keep_together = "other";
            }),
            "");
  EXPECT_EQ(broken([](C& film, C&) {
              film.sharding_types = {"table_wise", "column_wise"};
            }),
            "table film: the plan has sharding type row_wise, allowed is table_wise and column_wise\n");
  EXPECT_EQ(broken([](C& film, C&) { film.compute_kernels = {"dense"}; }),
            "table film: the plan has compute kernel fused, allowed is dense\n");
  EXPECT_EQ(broken([](C& film, C&) { film.compute_kernels = {"dense?x=1|2"}; }),
            "table film: the plan has compute kernel fused, allowed is dense?x=1 and dense?x=2\n");
  EXPECT_EQ(broken([](C& film, C&) { film.max_shards = 3; }), "table film: the plan has 4 shards, max_shards is 3\n");
  EXPECT_EQ(broken([](C& film, C&) {
              film.ranks = {0, 1, 2};
            }),
            "table film: the plan has a shard on rank 3, which is not allowed\n");
  EXPECT_EQ(broken([](C&, C& hashed) { hashed.forbidden_ranks = {1}; }),
            "table hashed: the plan has a shard on rank 1, which is not allowed\n");
  EXPECT_EQ(broken([](C& film, C& hashed) { film.keep_together = hashed.keep_together = "pair"; }),
            "table hashed: the plan has it on other ranks than film (keep_together pair)\n");
  EXPECT_EQ(broken([](C& film, C& hashed) { film.keep_apart = hashed.keep_apart = {"rivals"}; }),
            "table hashed: the plan has it on rank 3, as film (keep_apart rivals)\n");
}

TEST(Plan, ModelHashSeesEveryField) {
  PlannerModule module;
  module.tables = {{.name = "a", .num_embeddings = 10, .embedding_dim = 4, .feature_names = {"x", "y"}}};
  const std::string hash = model_hash({module});
  EXPECT_EQ(hash.size(), 16u);
  EXPECT_EQ(hash, model_hash({module}));
  std::vector<std::string> all{hash};
  const auto changed = [&](auto&& change) {
    PlannerModule other = module;
    change(other);
    all.push_back(model_hash({other}));
  };
  changed([](PlannerModule& m) { m.path = "p"; });
  changed([](PlannerModule& m) { m.kind = PlannerModule::Kind::kEmbeddingCollection; });
  changed([](PlannerModule& m) { m.tables[0].name = "b"; });
  changed([](PlannerModule& m) { m.tables[0].num_embeddings = 11; });
  changed([](PlannerModule& m) { m.tables[0].embedding_dim = 8; });
  changed([](PlannerModule& m) { m.tables[0].data_type = DType::kFloat16; });
  changed([](PlannerModule& m) { m.tables[0].feature_names = {"xy"}; });
  changed([](PlannerModule& m) { m.tables.push_back(m.tables[0]); });
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(all[i], all[k]) << i << " " << k;
  }
}

}  // namespace
}  // namespace tessera
