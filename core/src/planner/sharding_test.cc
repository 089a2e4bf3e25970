// Tests the sharder plugins, and the shardings that the planner makes from their layouts.
#include "tessera/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "config/test_refusal.h"
#include "modules/test_table.h"
#include "planner/search_space.h"
#include "planner/sharders.h"
#include "wiring/tiling.h"

namespace tessera {
namespace {

using testing::HasSubstr;
using Combine = ParameterSharding::Combine;
using test::table;

constexpr const char* kAllTypes[] = {"table_wise",        "row_wise",   "column_wise",  "table_row_wise",
                                     "table_column_wise", "grid_shard", "data_parallel"};

const Runtime& runtime() {
  static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false});
  return runtime;
}

Layout only_layout(const std::string& type, const EmbeddingBagConfig& t, const Topology& topology,
                   const LayoutRequest& request = {}) {
  const std::vector<Layout> layouts = Sharders(runtime(), topology).propose(type, t, request);
  EXPECT_EQ(layouts.size(), 1u);
  return layouts.at(0);
}

std::vector<int64_t> rows_of(const Layout& layout) {
  std::vector<int64_t> out;
  for (const tsr_rectangle& r : layout.rectangles) out.push_back(r.rows);
  return out;
}

TEST(Geometry, RowBlocks) {
  const auto rows = [](int64_t count, int world) {
    return rows_of(only_layout("row_wise", table(count, 8), Topology::of(world)));
  };
  EXPECT_EQ(rows(10, 4), (std::vector<int64_t>{3, 3, 3, 1}));
  EXPECT_EQ(rows(5, 4), (std::vector<int64_t>{2, 2, 1, 0}));
  EXPECT_EQ(rows(1001, 4), (std::vector<int64_t>{251, 251, 251, 248}));
  EXPECT_EQ(rows(3, 8), (std::vector<int64_t>{1, 1, 1, 0, 0, 0, 0, 0}));
  const Layout layout = only_layout("row_wise", table(5, 8), Topology::of(4));
  EXPECT_EQ(layout.rectangles[3].row, 5);
  EXPECT_EQ(rows_of(only_layout("table_row_wise", table(10, 8), Topology::of(8, 4))),
            (std::vector<int64_t>{3, 3, 3, 1}));
}

TEST(Geometry, ColumnWidths) {
  const auto pieces = [](int64_t cols, int64_t min_partition, int64_t max_shards = 0) {
    return only_layout("column_wise", table(4, cols), Topology::of(2), {min_partition, max_shards}).rectangles.size();
  };
  EXPECT_EQ(pieces(64, 0), 1u);
  EXPECT_EQ(pieces(64, 32), 2u);
  EXPECT_EQ(pieces(64, 48), 1u);
  EXPECT_EQ(pieces(64, 1000), 1u);
  EXPECT_EQ(pieces(100, 4), 25u);
  EXPECT_EQ(pieces(6, 1), 1u);
  EXPECT_EQ(pieces(130, 4), 1u);
  EXPECT_EQ(pieces(256, 0), 2u);
  EXPECT_EQ(pieces(96, 13), 6u);
  EXPECT_EQ(pieces(64, 4, 5), 4u);
}

TEST(Geometry, GridGoesBlockByBlock) {
  const Layout layout = only_layout("grid_shard", table(5, 8), Topology::of(4, 2), {4, 0});
  ASSERT_EQ(layout.rectangles.size(), 4u);
  EXPECT_EQ(text_of(layout.rectangles[0]), "rows [0, 3) x columns [0, 4)");
  EXPECT_EQ(text_of(layout.rectangles[1]), "rows [3, 5) x columns [0, 4)");
  EXPECT_EQ(text_of(layout.rectangles[2]), "rows [0, 3) x columns [4, 8)");
  EXPECT_EQ(text_of(layout.rectangles[3]), "rows [3, 5) x columns [4, 8)");
}

// Sharders::propose() throws if a layout does not tile the table or suit its placement, so most of the test is that it
// does not throw.
TEST(Geometry, RandomTablesAreTiled) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const int local = 1 + static_cast<int>(below(8)), hosts = 1 + static_cast<int>(below(4));
    const Topology topology = Topology::of(local * hosts, local);
    Sharders sharders(runtime(), topology);
    const EmbeddingBagConfig t = table(1 + below(2000), 1 + below(300));
    const LayoutRequest request{below(3) == 0 ? 0 : below(80), below(2) == 0 ? 0 : 1 + below(40)};
    for (const char* type : kAllTypes) {
      const std::vector<Layout> layouts = sharders.propose(type, t, request);
      for (const Layout& layout : layouts) {
        if (request.max_shards > 0) {
          EXPECT_LE(std::ssize(layout.rectangles), request.max_shards) << type;
        }
        const int64_t cells =
            std::accumulate(layout.rectangles.begin(), layout.rectangles.end(), int64_t{0},
                            [](int64_t sum, const tsr_rectangle& r) { return sum + r.rows * r.cols; });
        const int64_t copies = layout.combine == TSR_COMBINE_REPLICA ? topology.world_size : 1;
        EXPECT_EQ(cells, t.num_embeddings * t.embedding_dim * copies) << type;
      }
      if (request.max_shards == 0) {
        EXPECT_EQ(layouts.size(), 1u) << type;
      }
    }
  }
}

TEST(MakeSharding, PlacesAsAsked) {
  const Topology topology = Topology::of(4, 2);
  const auto ranks = [&](const ShardingRequest& request) {
    return make_sharding(runtime(), table(10, 16), request, topology).ranks();
  };
  EXPECT_EQ(ranks(table_wise(3)), (std::vector<int>{3}));
  EXPECT_EQ(ranks(row_wise()), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(ranks(column_wise({3, 1})), (std::vector<int>{3, 1}));
  EXPECT_EQ(ranks(table_row_wise(1, topology)), (std::vector<int>{2, 3}));
  EXPECT_EQ(ranks(table_column_wise({3, 2})), (std::vector<int>{3, 2}));
  EXPECT_EQ(ranks(grid_shard({1, 0}, topology)), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(ranks(data_parallel()), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(ranks({.sharding_type = "column_wise", .ranks = {1, 2}, .min_partition = 4}),
            (std::vector<int>{1, 2, 1, 2}));
  const ParameterSharding everywhere = make_sharding(runtime(), table(10, 16), data_parallel(), topology);
  EXPECT_EQ(everywhere.compute_kernel, "dense");
  EXPECT_EQ(everywhere.combine, Combine::kDataParallel);
  EXPECT_EQ(make_sharding(runtime(), table(10, 16), row_wise(), topology).compute_kernel, "fused");
}

std::string refusal(const ShardingRequest& request, const EmbeddingBagConfig& t = table(10, 16)) {
  return test::refusal([&] { (void)make_sharding(runtime(), t, request, Topology::of(4, 2)); }, "");
}

TEST(MakeSharding, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal(table_wise(4)), HasSubstr("rank 4 is outside the world of 4"));
  EXPECT_THAT(refusal({.sharding_type = "row_wise", .ranks = {0, 1}}), HasSubstr("on all ranks"));
  EXPECT_THAT(refusal(table_column_wise({1, 2})), HasSubstr("one host"));
  EXPECT_THAT(refusal(column_wise({0, 1, 2})), HasSubstr("cannot be divided into 3"));
  EXPECT_THAT(refusal(column_wise({0, 1}), table(10, 4)), HasSubstr("cannot be divided into 2"));
  EXPECT_THAT(refusal({.sharding_type = "diagonal_wise"}), HasSubstr("diagonal_wise"));
}

TEST(Completed, KnowsHowPiecesCombine) {
  const Topology topology = Topology::of(4, 2);
  const EmbeddingBagConfig t = table(10, 16);
  for (const ShardingRequest& request : {table_wise(2), row_wise(), column_wise({1, 0}), table_row_wise(1, topology),
                                         grid_shard({0, 1}, topology), data_parallel()}) {
    const ParameterSharding whole = make_sharding(runtime(), t, request, topology);
    ParameterSharding read = whole;
    read.combine = Combine::kConcat;
    if (whole.combine == Combine::kDataParallel) read.shards.clear();
    EXPECT_EQ(completed(runtime(), t, read, topology), whole) << request.sharding_type;
  }
  ParameterSharding broken = make_sharding(runtime(), t, row_wise(), topology);
  broken.shards[1].rows = 2;
  EXPECT_THROW((void)completed(runtime(), t, broken, topology), Error);
  broken = make_sharding(runtime(), t, row_wise(), topology);
  broken.shards[1].rank = 7;
  EXPECT_THROW((void)completed(runtime(), t, broken, topology), Error);
}

PlannerOptions options_with(const ParameterConstraints& constraints) {
  PlannerOptions options{.topology = Topology::of(4, 2)};
  options.constraints["t"] = constraints;
  return options;
}

std::vector<PlannerModule> model(std::vector<EmbeddingBagConfig> tables) {
  PlannerModule module{.path = "sparse", .tables = std::move(tables)};
  return {module};
}

TEST(Planner, KeepsRanksAndShardLimits) {
  ParameterConstraints c{.ranks = {1, 3}};
  const auto tables = model({table(1000, 64)});
  PlanResult result = EmbeddingShardingPlanner(runtime(), options_with(c)).plan(tables);
  for (const int r : result.plan.at("sparse").at("t").ranks()) EXPECT_EQ(r % 2, 1);
  for (const ShardingOption& o : result.space.options) EXPECT_STRNE(o.partition_by(), "uniform");
  c = {};
  c.max_shards = 2;
  c.min_partition = 4;
  result = EmbeddingShardingPlanner(runtime(), options_with(c)).plan(tables);
  for (const ShardingOption& o : result.space.options) EXPECT_LE(o.shards.size(), 2u) << o.sharding_type;
  c.ranks = {4};
  EXPECT_THROW((void)EmbeddingShardingPlanner(runtime(), options_with(c)).plan(tables), PlannerError);
}

TEST(Planner, AModuleThatSaysItsIdsAreWeightedPrevailsOverConstraints) {
  const auto weighted = [](std::optional<bool> module, bool constraint, const char* cost_model) {
    ParameterConstraints c{.sharding_types = {"table_wise"}, .pooling_factors = {1000}, .is_weighted = constraint};
    PlannerOptions options = options_with(c);
    options.cost_model = cost_model;
    auto tables = model({table(1000, 64)});
    tables[0].is_weighted = module;
    const SearchSpace space = enumerate(runtime(), options, tables);
    return std::pair(space.options.at(0).is_weighted, space.options.at(0).total_perf);
  };
  for (const char* cost_model : {"default", "torchrec"}) {
    const auto yes = weighted(std::nullopt, true, cost_model), no = weighted(std::nullopt, false, cost_model);
    EXPECT_TRUE(yes.first);
    EXPECT_GT(yes.second, no.second) << cost_model;
    EXPECT_EQ(weighted(true, false, cost_model), yes);
    EXPECT_EQ(weighted(false, true, cost_model), no);
  }
}

TEST(Planner, WithoutTorchRecsLimitsEveryTypeServesEveryDevice) {
  for (const char* type : kAllTypes) {
    ParameterConstraints c{.sharding_types = {type}};
    PlannerOptions options = options_with(c);
    for (const auto kind : {PlannerModule::Kind::kEmbeddingBagCollection, PlannerModule::Kind::kEmbeddingCollection}) {
      std::vector<PlannerModule> modules = model({table(100, 64)});
      modules[0].kind = kind;
      const PlanResult result = EmbeddingShardingPlanner(runtime(), options).plan(modules);
      EXPECT_EQ(result.plan.at("sparse").at("t").sharding_type, type);
      EXPECT_EQ(plan_mismatch(result.plan, modules), "");
      EXPECT_THAT(result.report(), HasSubstr("\n  t  "));
      EXPECT_THAT(result.explain("t"), HasSubstr(type));
    }
  }
}

TEST(Planner, ErrorsNameTableAndRemedy) {
  ParameterConstraints c{.sharding_types = {"diagonal_wise", "row_wise"}};
  try {
    (void)EmbeddingShardingPlanner(runtime(), options_with(c)).plan(model({table(100, 64)}));
    FAIL() << "planned";
  } catch (const PlannerError& e) {
    EXPECT_EQ(e.kind(), PlannerError::Kind::kNoOption);
    EXPECT_THAT(e.what(), HasSubstr("table t asks for sharding type diagonal_wise"));
    EXPECT_THAT(e.what(), HasSubstr("column_wise"));
  }
  PlannerOptions options{.topology = Topology::of(2)};
  options.topology.ddr_cap = 1 << 20;
  options.batch_size = 16;
  try {
    (void)EmbeddingShardingPlanner(runtime(), options).plan(model({table(100000, 64, "huge")}));
    FAIL() << "planned";
  } catch (const PlannerError& e) {
    EXPECT_EQ(e.error_type(), "insufficient_storage");
    EXPECT_EQ(e.code(), Code::kResourceExhausted);
    EXPECT_GT(e.num_proposals(), 0);
    EXPECT_THAT(e.what(), HasSubstr("table huge"));
    EXPECT_THAT(e.what(), HasSubstr("lacks"));
  }
  EXPECT_THROW(Topology::of(4, 3), PlannerError);
  EXPECT_THROW(Topology::of(4, 4, "abacus"), PlannerError);
}

}  // namespace
}  // namespace tessera
