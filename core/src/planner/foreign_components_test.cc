// The planner uses components that the core does not know: sharders, compute kernels and devices of third parties.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "config/test_refusal.h"
#include "planner/search_space.h"
#include "tessera/planner.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

const Runtime& foreign_alone() {
  static const Runtime runtime({.plugin_path = {TESSERA_FOREIGN_PLUGINS}, .default_path = false});
  return runtime;
}
const Runtime& all() {
  static const Runtime runtime(
      {.plugin_path = {TESSERA_PLUGINS_BUILT, TESSERA_FOREIGN_PLUGINS}, .default_path = false});
  return runtime;
}

std::vector<PlannerModule> film() {
  EmbeddingBagConfig t{.name = "film", .num_embeddings = 1000, .embedding_dim = 16, .feature_names = {"film"}};
  return {{.path = "sparse", .tables = {t}}};
}

TEST(ForeignComponents, AreTakenWhereThereAreNoOthers) {
  const PlanResult result = EmbeddingShardingPlanner(foreign_alone(), {.topology = Topology::of(2)}).plan(film());
  const ParameterSharding& taken = result.plan.at("sparse").at("film");
  EXPECT_EQ(taken.sharding_type, "acme.stripe");
  EXPECT_EQ(taken.compute_kernel, "acme.on_disk");
  EXPECT_TRUE(taken.routed);
}

TEST(ForeignComponents, AreTriedBesideOursAndThePlanSaysSo) {
  PlannerOptions options{.topology = Topology::of(4, 2)};
  const PlanResult result = EmbeddingShardingPlanner(all(), options).plan(film());
  std::set<std::string> types, kernels;
  for (const ShardingOption& o : result.space.options) {
    types.insert(o.sharding_type);
    kernels.insert(o.compute_kernel);
    EXPECT_GT(o.total_perf, 0) << o.sharding_type << " " << o.compute_kernel;
  }
  EXPECT_THAT(types, AllOf(Contains("acme.stripe"), Contains("row_wise"), Not(Contains("grid_shard")),
                           Not(Contains("acme.stubborn"))));
  EXPECT_EQ(kernels, (std::set<std::string>{"acme.on_disk", "acme.shelf", "dense", "fused"}));
  EXPECT_EQ(result.plan.at("sparse").at("film").compute_kernel, "acme.on_disk") << "its estimate is the lowest";
  EXPECT_EQ(std::set<std::string>(result.plan.sharders.begin(), result.plan.sharders.end()),
            (std::set<std::string>{"acme.stripe", "column_wise", "data_parallel", "row_wise", "table_column_wise",
                                   "table_row_wise", "table_wise"}));
  EXPECT_THAT(result.report(), HasSubstr("Sharders tried: acme.stripe, column_wise, data_parallel, row_wise"));
  EXPECT_THAT(result.plan.json(), HasSubstr(R"("sharders": ["acme.stripe","column_wise")"));
  EXPECT_EQ(ShardingPlan::from_json(result.plan.json()), result.plan);
}

TEST(ForeignComponents, SayWhereTheirRowsLie) {
  constexpr int64_t kRows = int64_t{1000} * 16 * 4;
  const auto storage_of = [&](const std::string& kernel) {
    PlannerOptions options{.topology = Topology::of(1)};
    options.constraints["film"].sharding_types = {"table_wise"};
    options.constraints["film"].compute_kernels = {kernel};
    const SearchSpace space = enumerate(all(), options, film());
    EXPECT_EQ(space.options.at(0).compute_kernel, kernel);
    return space.options.at(0).total_storage;
  };
  const Storage on_disk = storage_of("acme.on_disk"), with_cache = storage_of("acme.on_disk?cache=0.75");
  EXPECT_EQ(on_disk.ssd, kRows);
  EXPECT_EQ(with_cache.ssd, kRows / 4);
  EXPECT_EQ(with_cache.ddr - on_disk.ddr, kRows * 3 / 4);
  EXPECT_EQ(with_cache.hbm, 0);
}

TEST(ForeignComponents, AreChosenByTheValuesOfTheirOptions) {
  PlannerOptions options{.topology = Topology::of(1)};
  options.storage_reservation = {StorageReservation::Kind::kFixedPercentage, 0};
  ParameterConstraints& film_only = options.constraints["film"];
  film_only.sharding_types = {"table_wise"};
  const auto chosen = [&](int64_t ddr) {
    options.topology.ddr_cap = ddr;
    return EmbeddingShardingPlanner(all(), options).plan(film()).plan.at("sparse").at("film").compute_kernel;
  };
  film_only.compute_kernels = {"acme.on_disk?cache=0.25|0.5|0.75"};
  EXPECT_EQ(chosen(int64_t{1} << 30), "acme.on_disk?cache=0.75") << "the fastest";
  const int64_t beside = enumerate(all(), options, film()).options.at(0).total_storage.ddr - 16000;
  EXPECT_EQ(chosen(beside + 48000), "acme.on_disk?cache=0.75");
  EXPECT_EQ(chosen(beside + 47999), "acme.on_disk?cache=0.5");
  EXPECT_EQ(chosen(beside + 16000), "acme.on_disk?cache=0.25");
  film_only.compute_kernels = {"fused", "acme.on_disk?cache=0.25|0.5"};
  EXPECT_EQ(enumerate(all(), options, film()).options.size(), 3);
  for (const char* wrong : {"acme.on_disk?cache=|0.5", "acme.on_disk?cache=0.5|", "acme.on_disk|fused"}) {
    film_only.compute_kernels = {wrong};
    EXPECT_THAT(test::refusal([&] { (void)chosen(1 << 30); }),
                HasSubstr(str_cat("\"", wrong, "\" is not a choice of compute kernels: a ")));
  }
}

// Estimates are asked for band by band. If little memory is kept, most bands do not get a whole row of it.
TEST(ForeignComponents, HaveNothingOfABandOrSayNothingOfATable) {
  const auto bytes_of = [&](const std::string& kernel) {
    PlannerOptions options{.topology = Topology::of(1)};
    ParameterConstraints& film_only = options.constraints["film"];
    film_only.sharding_types = {"table_wise"};
    film_only.compute_kernels = {kernel};
    film_only.zipf_exponent = 1.05;
    std::vector<PlannerModule> modules = film();
    modules[0].tables[0].num_embeddings = int64_t{1} << 40;
    const SearchSpace space = enumerate(all(), options, modules);
    EXPECT_EQ(space.options.at(0).compute_kernel, kernel);
    return space.options.at(0).total_storage.ddr;
  };
  constexpr int64_t kStep = int64_t{512} * (8 + 16 * 4);  // bytes of a batch's ids and rows
  const int64_t few = bytes_of("acme.shelf?holds=500"), all_rows = (int64_t{1} << 40) * 16 * 4;
  EXPECT_GT(few, kStep + int64_t{480} * 16 * 4);
  EXPECT_LE(few, kStep + int64_t{500} * 16 * 4);
  EXPECT_EQ(bytes_of("acme.shelf"), kStep + all_rows) << "bands add up to the table";
  EXPECT_EQ(bytes_of("acme.shelf?holds=0"), kStep + all_rows + (int64_t{4} << 40)) << "nothing said: the usual state";
}

TEST(ForeignComponents, OnDiskAreHeldToTheDisk) {
  PlannerOptions options{.topology = Topology::of(2)};
  options.constraints["film"].sharding_types = {"table_wise"};
  options.constraints["film"].compute_kernels = {"acme.on_disk"};
  const auto error = [&] {
    return test::refusal([&] { (void)EmbeddingShardingPlanner(all(), options).plan(film()); });
  };
  options.topology.ssd_note = "ssd is what a small disk has free";
  const PlanResult fits = EmbeddingShardingPlanner(all(), options).plan(film());
  EXPECT_THAT(fits.report(),
              AllOf(HasSubstr(" of ddr, 2 TiB of ssd; set aside"), HasSubstr("; ssd is what a small disk"),
                    testing::ContainsRegex("of free  disk MiB  of free\n.*  0\\.1     0\\.0%")));
  options.topology.ssd_cap = 10 << 10;
  EXPECT_THAT(error(),
              AllOf(HasSubstr("the smallest needs 72 KiB of ddr, 62.5 KiB of ssd, and the 2 ranks have 256 GiB "
                              "of ddr, 20 KiB of ssd together"),
                    HasSubstr("lacks 52.5 KiB of ssd (53760 bytes) even when it is empty; ssd is what a small "
                              "disk has free; it would fit without kernel/kernels of table film, or with "),
                    HasSubstr(" of ssd (")));
  options.topology.set_memory_gib({}, {}, {1e-6, 1});
  EXPECT_EQ(EmbeddingShardingPlanner(all(), options).plan(film()).plan.at("sparse").at("film").ranks(),
            std::vector<int>{1});
  options.topology.set_memory_gib({}, {}, {1e-6, 1e-6});
  EXPECT_THAT(error(), AllOf(HasSubstr(" of ssd"), Not(HasSubstr("a small disk"))));
  options.topology.set_memory_gib({}, {2e-4}, {1});
  options.topology.ssd_note = "ssd is what a small disk has free";
  options.constraints["film"].compute_kernels = {"fused"};
  EXPECT_THAT(error(), AllOf(HasSubstr("lacks 8.69 KiB of ddr"), Not(HasSubstr("ssd")))) << "which no table wants";
  EXPECT_THROW(options.topology.set_memory_gib({}, {}, {1, 2, 3}), PlannerError);
}

// Options with refused shards are left out, because a job could not open them.
TEST(ForeignComponents, RefuseShardsWhichAreThenNoOptions) {
  PlannerOptions options{.topology = Topology::of(2)};
  options.constraints["film"].compute_kernels = {"acme.on_disk"};
  std::vector<PlannerModule> modules = film();
  modules[0].tables[0].num_embeddings = 1500000;
  std::set<std::string> types;
  for (const ShardingOption& o : enumerate(all(), options, modules).options) types.insert(o.sharding_type);
  EXPECT_EQ(types, (std::set<std::string>{"acme.stripe", "row_wise", "table_row_wise"})) << "those that cut rows";
  options.constraints["film"].sharding_types = {"table_wise"};
  EXPECT_THAT(
      test::refusal([&] { (void)EmbeddingShardingPlanner(all(), options).plan(modules); }),
      AllOf(HasSubstr("table film has no sharding"), HasSubstr("at most 1000000 rows are served, not 1500000")));
}

TEST(ForeignComponents, WithAllRowsFromTheStartRefuseIdsWithoutEnd) {
  PlannerOptions options{.topology = Topology::of(2)};
  options.constraints["film"].compute_kernels = {"acme.on_disk"};
  std::vector<PlannerModule> modules = film();
  modules[0].tables[0].any_id = true;
  EXPECT_THAT(test::refusal([&] { (void)EmbeddingShardingPlanner(all(), options).plan(modules); }),
              HasSubstr("acme.store has all rows from the start, and with any_id a row comes when its id does"));
}

TEST(ForeignComponents, TakeShardsThatABetterOneRefuses) {
  PlannerOptions options{.topology = Topology::of(1)};
  options.constraints["film"].compute_kernels = {"acme.shelf"};
  options.constraints["film"].sharding_types = {"table_wise"};
  std::vector<PlannerModule> modules = film();
  EXPECT_LT(enumerate(all(), options, modules).options.at(0).total_perf, 1000) << "acme.store, in milliseconds";
  modules[0].tables[0].num_embeddings = 1500000;
  EXPECT_GT(enumerate(all(), options, modules).options.at(0).total_perf, 14000) << "acme.attic";
}

TEST(ForeignComponents, ThatWantToBeAskedAreTriedWhenTheyAre) {
  PlannerOptions options{.topology = Topology::of(2)};
  options.constraints["film"].sharding_types = {"acme.stubborn"};
  const PlanResult result = EmbeddingShardingPlanner(all(), options).plan(film());
  EXPECT_EQ(result.plan.at("sparse").at("film").shards.size(), 16u);
  EXPECT_EQ(result.plan.sharders, std::vector<std::string>{"acme.stubborn"});
}

// Layouts that break a constraint are left out, because broken_constraints() would refuse a plan with them.
TEST(ForeignComponents, ThatHeedNoConstraintAreLeftOut) {
  PlannerOptions options{.topology = Topology::of(2)};
  ParameterConstraints& c = options.constraints["film"];
  c.sharding_types = {"acme.stubborn", "table_wise"};
  c.min_partition = 4;
  const PlanResult result = EmbeddingShardingPlanner(all(), options).plan(film());
  EXPECT_EQ(result.plan.at("sparse").at("film").sharding_type, "table_wise");
  for (const ShardingOption& o : result.space.options) EXPECT_EQ(o.sharding_type, "table_wise");
  c.sharding_types = {"acme.stubborn"};
  EXPECT_THAT(test::refusal([&] { (void)EmbeddingShardingPlanner(all(), options).plan(film()); }),
              HasSubstr("table film has no sharding of types acme.stubborn"));
}

// A plan may be for another machine, whose kernels are not here. The planner then assumes the compute kernels of
// abi/kernel.h, and no others.
TEST(ComputeKernels, OfAnotherMachineAreThoseOfTheContract) {
  PlannerOptions options{.topology = Topology::of(2, 2, "cuda")};
  const PlanResult result = EmbeddingShardingPlanner(all(), options).plan(film());
  std::set<std::string> kernels;
  for (const ShardingOption& o : result.space.options) kernels.insert(o.compute_kernel);
  EXPECT_EQ(kernels, (std::set<std::string>{"dense", "fused"}));
  EXPECT_THAT(result.report(), HasSubstr("times are by typical figures of cuda"));
  options.torchrec_limits = true;
  options.cost_model = "torchrec";
  kernels.clear();
  for (const ShardingOption& o : enumerate(all(), options, film()).options) kernels.insert(o.compute_kernel);
  EXPECT_THAT(kernels, AllOf(Contains("fused_uvm"), Contains("fused_uvm_caching")));
}

TEST(ComputeDevice, NobodyKnowsNeedsFigures) {
  ComputeDevice acme{.id = "acme", .type = kDLExtDev, .memory = int64_t{1} << 30};
  PlannerOptions options{.topology = Topology::of(2, 2, acme)};
  const auto plan = [&] { return EmbeddingShardingPlanner(all(), options).plan(film()); };
  EXPECT_THAT(test::refusal(plan),
              AllOf(HasSubstr("no figures of the device \"acme\""), HasSubstr("tessera calibrate")));
  options.cost_model = "torchrec";
  EXPECT_THAT(test::refusal(plan), HasSubstr("which are not known for acme"));
  options.cost_model = "default";
  Machine measured = Machine::typical("cuda");
  measured.device = "acme";
  measured.measured = true;
  measured.name = "an acme box";
  options.machine = measured;
  EXPECT_THAT(plan().report(), HasSubstr("figures measured on an acme box"));
  options.machine.reset();
  acme.memory_bandwidth = 1e7;
  acme.link_bandwidth = 1e6;
  options.topology = Topology::of(2, 2, acme);
  const PlanResult result = plan();
  EXPECT_EQ(result.plan.compute_device, "acme");
  EXPECT_THAT(result.report(), HasSubstr("typical figures of acme (by the bandwidths that its plugin states)"));
  EXPECT_GT(result.rank_storage.at(0).hbm + result.rank_storage.at(1).hbm, 0) << "rows lie on the device";
}

}  // namespace
}  // namespace tessera
