// The balanced search and the constraints that both searches keep.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "config/test_refusal.h"
#include "planner/greedy/partitioner.h"
#include "planner/search_space.h"
#include "planner/skewed_tables.h"
#include "tessera/planner.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Runtime& sharders() {
  static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT}, .default_path = false});
  return runtime;
}

EmbeddingBagConfig table(const std::string& name, int64_t rows, int64_t cols) {
  return {.name = name, .num_embeddings = rows, .embedding_dim = cols, .feature_names = {name}};
}

struct Problem {
  std::vector<PlannerModule> modules;
  PlannerOptions options;

  ParameterConstraints& add(const std::string& name, int64_t rows, int64_t cols) {
    if (modules.empty()) modules.emplace_back();
    modules.front().tables.push_back(table(name, rows, cols));
    return options.constraints[name];
  }
  PlanResult plan(PlannerSearch search = PlannerSearch::kBalanced) const {
    PlannerOptions with = options;
    with.search = search;
    return EmbeddingShardingPlanner(sharders(), with).plan(modules);
  }
  std::string error() const {
    return test::refusal<PlannerError>([&] { (void)plan(); }, "a plan was made");
  }
};

Problem on_cpu(int world, int64_t ddr, int local = 0) {
  Problem p;
  p.options.topology = Topology::of(world, local, "cpu");
  p.options.topology.ddr_cap = ddr;
  p.options.storage_reservation = {StorageReservation::Kind::kFixedPercentage, 0};
  p.options.batch_size = 4;
  return p;
}

std::set<int> ranks_of(const PlanResult& result, const std::string& name) {
  const std::vector<int> ranks = result.plan.at("").at(name).ranks();
  return {ranks.begin(), ranks.end()};
}

// Checks every rule that a plan must keep.
void expect_sound(const Problem& p, const PlanResult& result) {
  const auto world = static_cast<size_t>(p.options.topology.world_size);
  std::vector<Storage> used(world);
  std::vector<double> time(world);
  std::map<std::string, std::vector<std::string>> together, apart;
  for (const size_t index : result.chosen) {
    const ShardingOption& option = result.space.options[index];
    const std::vector<int> ranks = result.plan.at(option.path).at(option.name).ranks();
    ASSERT_EQ(ranks.size(), option.shards.size());
    for (size_t i = 0; i < ranks.size(); ++i) {
      const auto r = static_cast<size_t>(ranks[i]);
      used[r] += option.shards[i].storage;
      time[r] += option.shards[i].perf.total();
    }
    const ParameterConstraints& c = p.options.constraints.at(option.name);
    for (const int r : ranks) {
      EXPECT_TRUE(c.ranks.empty() || std::count(c.ranks.begin(), c.ranks.end(), r) > 0) << option.name;
      EXPECT_EQ(std::count(c.forbidden_ranks.begin(), c.forbidden_ranks.end(), r), 0) << option.name;
    }
    if (c.max_shards > 0) {
      EXPECT_LE(std::ssize(ranks), c.max_shards);
    }
    if (!c.keep_together.empty()) together[c.keep_together].push_back(option.name);
    for (const std::string& group : c.keep_apart) apart[group].push_back(option.name);
  }
  for (size_t r = 0; r < world; ++r) {
    EXPECT_TRUE(used[r].fits_in(p.options.topology.memory(static_cast<int>(r)))) << "rank " << r;
  }
  EXPECT_NEAR(*result.perf_rating, *std::max_element(time.begin(), time.end()), 1e-12 * *result.perf_rating);
  for (const auto& [group, names] : together) {
    for (const std::string& name : names) EXPECT_EQ(ranks_of(result, name), ranks_of(result, names.front())) << group;
  }
  for (const auto& [group, names] : apart) {
    std::set<int> all;
    size_t sum = 0;
    for (const std::string& name : names) {
      const std::set<int> ranks = ranks_of(result, name);
      sum += ranks.size();
      all.insert(ranks.begin(), ranks.end());
    }
    EXPECT_EQ(all.size(), sum) << group;
  }
}

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }

 private:
  std::mt19937 random_;
};

Problem random_problem(Random& random) {
  const int local = 1 + random.below(4), world = local * (1 + random.below(3));
  Problem p = on_cpu(world, int64_t{1024} * (200 + random.below(1500)), local);
  if (random.one_in(3)) {
    for (int r = 0; r < world; ++r) p.options.topology.ddr_caps.push_back(int64_t{1024} * (200 + random.below(1500)));
  }
  const bool groups = random.one_in(2);
  for (int t = 1 + random.below(8); t > 0; --t) {
    ParameterConstraints& c = p.add(str_cat("t", t), 1 + random.below(3000), 4 << random.below(6));
    c.pooling_factors = {0.5 + random.below(40)};
    if (random.one_in(3)) c.min_partition = 8;
    if (random.one_in(5)) c.max_shards = 1 + random.below(6);
    if (random.one_in(6)) c.forbidden_ranks = {random.below(world)};
    if (random.one_in(6)) c.ranks = {random.below(world), random.below(world)};
    if (random.one_in(8)) c.sharding_types = {"table_wise", "column_wise"};
    if (groups && random.one_in(3)) c.keep_together = str_cat("g", random.below(2));
    if (groups && random.one_in(3)) c.keep_apart = {str_cat("a", random.below(2))};
  }
  return p;
}

TEST(Shards, RunsGiveBackWhatWasPutIn) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Shard> list;
    Shards shards;
    for (int i = 0, n = random.below(20); i < n; ++i) {
      Shard s{.rows = 1 + random.below(2), .cols = 8, .row = random.one_in(4) ? random.below(9) : i * 2};
      s.storage.hbm = s.rows * 3;
      s.perf.fwd_compute = static_cast<double>(s.rows);
      list.push_back(s);
      shards.push_back(s);
    }
    ASSERT_EQ(shards.size(), list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      const Shard s = shards[i];
      EXPECT_EQ(std::tie(s.rows, s.cols, s.row, s.col), std::tie(list[i].rows, list[i].cols, list[i].row, list[i].col));
      EXPECT_EQ(s.storage, list[i].storage);
      EXPECT_EQ(s.perf, list[i].perf);
    }
  }
}

TEST(BalancedSearch, KeepsEveryRuleAndIsNeverWorseThanGreedy) {
  Random random(29);
  int planned = 0, better = 0, contradictions = 0;
  for (int round = 0; round < 400; ++round) {
    const Problem p = random_problem(random);
    std::optional<PlanResult> balanced, torchrec;
    std::string why;
    try {
      torchrec = p.plan(PlannerSearch::kTorchrec);
    } catch (const PlannerError&) {
    }
    try {
      balanced = p.plan();
    } catch (const PlannerError& e) {
      why = e.what();
      contradictions += e.kind() == PlannerError::Kind::kBadInput || e.kind() == PlannerError::Kind::kNoOption;
    }
    if (torchrec) expect_sound(p, *torchrec);
    if (balanced) expect_sound(p, *balanced);
    EXPECT_TRUE(balanced || !torchrec) << why;
    if (!balanced || !torchrec) continue;
    ++planned;
    EXPECT_LE(*balanced->perf_rating, *torchrec->perf_rating * (1 + 1e-12));
    better += *balanced->perf_rating < *torchrec->perf_rating * (1 - 1e-9);
  }
  EXPECT_GT(planned, 150);
  EXPECT_GT(better, planned / 5);
  EXPECT_GT(contradictions, 5);
}

// For tables as skewed as in production, the search finds an even partition, with fewer proposals than greedy, and the
// same every time.
TEST(BalancedSearch, SkewedTablesAreBalanced) {
  for (const auto& [device, fill] : {std::pair{"cuda", 0.5}, {"cuda", 0.7}, {"cpu", 0.5}}) {
    SkewedTables tables;
    tables.count = 300;
    tables.fill = fill;
    tables.topology = Topology::of(32, 8, device);
    const auto [modules, options] = tables.make();
    const EmbeddingShardingPlanner planner(sharders(), options);
    const PlanResult result = planner.plan(modules);
    EXPECT_EQ(result.plan.json(), planner.plan(modules).plan.json());
    for (size_t r = 0; r < result.rank_storage.size(); ++r) {
      EXPECT_TRUE(result.rank_storage[r].fits_in(result.reserved.per_rank[r]));
    }
    const double mean = std::accumulate(result.rank_perf.begin(), result.rank_perf.end(), 0.0) / 32;
    EXPECT_LT(*result.perf_rating, 1.1 * mean) << device << " " << fill;
    std::vector<const ShardingOption*> chosen;
    for (const size_t index : result.chosen) chosen.push_back(&result.space.options[index]);
    const greedy::Partition greedy = greedy::partition(chosen, options.topology, result.reserved.available);
    EXPECT_TRUE(greedy.failure || greedy.perf_rating > *result.perf_rating) << device << " " << fill;
  }
}

TEST(BalancedSearch, TheTimeLimitEndsIt) {
  SkewedTables tables;
  tables.count = 2000;
  tables.topology = Topology::of(64, 8, "cuda");
  auto [modules, options] = tables.make();
  for (const double limit : {1e-9, 1e-3}) {
    for (const PlannerSearch search : {PlannerSearch::kBalanced, PlannerSearch::kTorchrec}) {
      options.time_limit_s = limit;
      options.search = search;
      try {
        const PlanResult result = EmbeddingShardingPlanner(sharders(), options).plan(modules);
        EXPECT_EQ(result.chosen.size(), 2000u);
        EXPECT_TRUE(result.cut_short);
        EXPECT_THAT(result.report(), HasSubstr("the time limit ended the search"));
      } catch (const PlannerError& e) {
        EXPECT_THAT(e.what(), HasSubstr("time limit"));
      }
    }
  }
  options.time_limit_s = -1;
  EXPECT_THROW(EmbeddingShardingPlanner(sharders(), options), PlannerError);
}

// Every table after the first gets the least work, but still a sharding that fits.
TEST(BalancedSearch, TheTimeLimitEndsTheLookAtShardings) {
  SkewedTables tables;
  tables.count = 60;
  tables.fill = 0.05;
  tables.topology = Topology::of(64, 8, "cuda");
  auto [modules, options] = tables.make();
  EmbeddingBagConfig& large = modules[0].tables[30];
  large.num_embeddings = 2 * options.topology.hbm_cap / (4 * large.embedding_dim);
  options.time_limit_s = 0;
  const PlanResult all = EmbeddingShardingPlanner(sharders(), options).plan(modules);
  EXPECT_EQ(all.space.narrowed, 0u);
  EXPECT_THAT(all.report(), Not(HasSubstr("left shardings")));
  options.time_limit_s = 1e-9;
  const PlanResult hurried = EmbeddingShardingPlanner(sharders(), options).plan(modules);
  EXPECT_GE(hurried.space.narrowed, 50u);
  EXPECT_LT(hurried.space.options.size(), all.space.options.size() / 2);
  EXPECT_EQ(hurried.chosen.size(), 60u);
  EXPECT_THAT(hurried.report(),
              HasSubstr(str_cat("the time limit left shardings of ", hurried.space.narrowed, " of 60")));
  EXPECT_EQ(enumerate(sharders(), options, modules).options.size(), all.space.options.size());
}

TEST(Constraints, TogetherAndApart) {
  Problem p = on_cpu(4, 1 << 20);
  p.add("a", 100, 64).keep_together = "pair";
  p.add("b", 5000, 16).keep_together = "pair";
  p.add("c", 100, 64).keep_apart = {"rivals"};
  p.add("d", 100, 64).keep_apart = {"rivals", "more"};
  p.add("e", 100, 64).keep_apart = {"more"};
  for (const PlannerSearch search : {PlannerSearch::kBalanced, PlannerSearch::kTorchrec}) {
    const PlanResult result = p.plan(search);
    expect_sound(p, result);
    EXPECT_EQ(result.plan.at("").tables().size(), 5u);
  }
}

TEST(Constraints, AnErrorSaysWhereTheMemoryIsFrom) {
  Problem p = on_cpu(2, 1 << 10);
  p.add("large", 3000, 64);
  p.options.topology.ddr_note = "ddr is what a small container has left";
  p.options.topology.ssd_note = "ssd is what a small disk has left";  // no table is on the disk
  EXPECT_THAT(p.error(), HasSubstr("even when it is empty; ddr is what a small container has left; it would fit with"));
  p.options.topology.set_memory_gib({}, {1e-6, 0});
  EXPECT_THAT(p.error(), HasSubstr("a small container"));
  p.options.topology.set_memory_gib({}, {1e-6});
  EXPECT_THAT(p.error(), Not(HasSubstr("a small container")));
}

TEST(Constraints, MemoryOfEveryRank) {
  Problem p = on_cpu(3, 0);
  p.options.topology.ddr_caps = {1 << 20, 40 << 10, 40 << 10};
  p.add("large", 3000, 64).sharding_types = {"table_wise"};
  p.add("small", 100, 64).sharding_types = {"table_wise"};
  const PlanResult result = p.plan();
  expect_sound(p, result);
  EXPECT_EQ(ranks_of(result, "large"), std::set<int>{0});
  EXPECT_NE(ranks_of(result, "small"), std::set<int>{0});
  p.options.topology.ddr_caps = {1, 2};
  EXPECT_THROW((void)p.plan(), PlannerError);
  Topology t = Topology::of(2, 2, "cuda");
  t.set_memory_gib({1, 0}, {3});
  EXPECT_EQ(t.memory(0), (Storage{int64_t{1} << 30, int64_t{3} << 30, t.ssd_cap}));
  EXPECT_EQ(t.memory(1).hbm, int64_t{32} << 30);
  EXPECT_THROW(t.set_memory_gib({1, 2, 3}, {}), PlannerError);
  EXPECT_THROW(t.set_memory_gib({}, {-1}), PlannerError);
}

TEST(Constraints, WhatCannotHoldIsOneSentence) {
  const auto of_two = [](const auto& change) {
    Problem p = on_cpu(2, 1 << 20);
    ParameterConstraints& film = p.add("film", 10, 8);
    ParameterConstraints& user = p.add("user", 10, 8);
    change(film, user);
    return p.error();
  };
  using C = ParameterConstraints;
  EXPECT_THAT(of_two([](C& film, C&) { film.ranks = {0}, film.forbidden_ranks = {0}; }),
              AllOf(HasSubstr("film"), HasSubstr("pinned to is also forbidden")));
  EXPECT_THAT(of_two([](C& film, C&) {
                film.forbidden_ranks = {0, 1};
              }),
              AllOf(HasSubstr("film"), HasSubstr("all 2 ranks are forbidden")));
  EXPECT_THAT(of_two([](C& film, C&) { film.forbidden_ranks = {2}; }), HasSubstr("rank 2 is outside the world of 2"));
  EXPECT_THAT(of_two([](C& film, C& user) {
                film.keep_together = user.keep_together = "pair";
                film.ranks = {0}, user.ranks = {1};
              }),
              AllOf(HasSubstr("film and user"), HasSubstr("together (pair)"), HasSubstr("no rank is allowed for all")));
  EXPECT_THAT(of_two([](C& film, C& user) {
                film.keep_together = user.keep_together = "pair";
                film.keep_apart = user.keep_apart = {"rivals"};
              }),
              AllOf(HasSubstr("film and user"), HasSubstr("apart (rivals) and together (pair)")));
  EXPECT_THAT(of_two([](C& film, C& user) {
                film.keep_apart = user.keep_apart = {"rivals"};
                film.ranks = user.ranks = {1};
              }),
              AllOf(HasSubstr("film and user"), HasSubstr("apart (rivals)"), HasSubstr("too few ranks")));
  EXPECT_THAT(
      of_two([](C& film, C& user) {
        film.keep_together = user.keep_together = "pair";
        film.sharding_types = {"row_wise"}, user.sharding_types = {"table_wise"};
      }),
      AllOf(HasSubstr("film and user"), HasSubstr("must be kept together"), HasSubstr("the same number of shards")));
  EXPECT_THAT(of_two([](C& film, C&) { film.sharding_types = {"row_wise"}, film.forbidden_ranks = {1}; }),
              AllOf(HasSubstr("film"), HasSubstr("row_wise"), HasSubstr("1 ranks allowed")));
  EXPECT_THROW((void)planner_search_from("fastest"), Error);
}

TEST(Constraints, ManyTablesAreNotListed) {
  Problem p = on_cpu(2, int64_t{1} << 30);
  for (int t = 0; t < 12; ++t) p.add(str_cat("t", t), 10, 16).keep_apart = {"all"};
  EXPECT_THAT(p.error(), HasSubstr("tables t0, t1, t2, t3, t4, t5, t6 and 5 more must be kept apart (all)"));
}

TEST(Advice, NamesTableRankBytesAndWhatWouldFit) {
  Problem p = on_cpu(2, 100 << 10);
  p.add("film", 600, 64).sharding_types = {"table_wise"};  // 150 KiB
  EXPECT_THAT(p.error(),
              AllOf(HasSubstr("table film"), HasSubstr("rank 0"), HasSubstr("lacks"), HasSubstr("bytes"),
                    HasSubstr("it would fit"), HasSubstr("if table film may be "), HasSubstr("more on every rank")));
  const std::string text = p.error();
  const size_t begin = text.find("may be ") + 7;
  p.options.constraints["film"].sharding_types = {"table_wise",
                                                  text.substr(begin, text.find_first_of(",.; ", begin) - begin)};
  (void)p.plan();
}

TEST(Advice, OneRankMoreAndOneConstraintLess) {
  Problem ranks = on_cpu(2, 100 << 10);
  for (const char* name : {"a", "b", "c"}) ranks.add(name, 300, 64).sharding_types = {"table_wise"};  // 75 KiB each
  EXPECT_THAT(ranks.error(), AllOf(HasSubstr("no plan"), HasSubstr("with 1 more rank of the same size")));
  Problem pins = on_cpu(2, 100 << 10);
  for (const char* name : {"a", "b"}) {
    ParameterConstraints& c = pins.add(name, 300, 64);
    c.sharding_types = {"table_wise"};
    c.ranks = {1};
  }
  EXPECT_THAT(pins.error(), AllOf(HasSubstr("memory suffices in total"), HasSubstr("without ranks of table a")));
}

TEST(Advice, OfTheBytesThatItAsksFor) {
  Problem p = on_cpu(2, 100 << 20);
  p.add("film", 600 << 10, 64).sharding_types = {"table_wise"};  // 150 MiB
  const std::string text = p.error();
  const size_t end = text.find(" bytes) more on every rank");
  ASSERT_NE(end, std::string::npos) << text;
  const int64_t more = std::stoll(text.substr(text.rfind('(', end) + 1));
  EXPECT_GE(more, 50 << 20);
  EXPECT_LT(more, 54 << 20);
  p.options.topology.ddr_cap += more;
  (void)p.plan();
}

// Advice finds the amount even for 256 TB of rows and ranks of 1 GiB.
TEST(Advice, MoreMemoryHelpsEveryTable) {
  Problem p = on_cpu(2, int64_t{1} << 30);
  p.add("film", 4'000'000'000, 16384).sharding_types = {"table_wise"};
  const std::string text = p.error();
  EXPECT_THAT(text, HasSubstr("it would fit with 239 TiB of ddr ("));
  EXPECT_THAT(text, Not(HasSubstr("nor more memory")));
}

// The input takes more memory than there is.
TEST(Advice, NothingIsLeftForTables) {
  Problem p = on_cpu(2, 1 << 20);
  p.options.storage_reservation = {};
  p.options.batch_size = 1 << 20;
  p.add("film", 100, 64);
  const std::string text = p.error();
  EXPECT_THAT(text, AllOf(HasSubstr("nothing is left for tables: of 1 MiB of ddr per rank"),
                          HasSubstr("the input 160 MiB of ddr"), HasSubstr("reduce the batch of 1048576 per rank")));
  p.options.torchrec_limits = true;
  EXPECT_THAT(p.error(), AllOf(HasSubstr("the 2 ranks have nothing together"), Not(HasSubstr("-"))));
}

TEST(Advice, NothingHelps) {
  Problem p = on_cpu(2, 1000);
  p.options.time_limit_s = 5;
  p.add("film", 1 << 20, 64).sharding_types = {"table_wise"};
  p.options.constraints["film"].max_shards = 1;
  EXPECT_THAT(p.error(), HasSubstr("no plan"));
}

// Tables that a kernel does not serve are not planned for it.
class KernelsThatServe : public testing::Test {
 protected:
  static const Runtime& runtime() {
    static const Runtime runtime({.plugin_path = {TESSERA_PLUGINS_BUILT, TESSERA_TEST_PLUGINS}, .default_path = false});
    return runtime;
  }
  static std::string planned(const PlannerOptions& options, EmbeddingBagConfig t) {
    try {
      const ParameterSharding s = EmbeddingShardingPlanner(runtime(), options)
                                      .plan({{.path = "", .tables = {std::move(t)}}})
                                      .plan.at("")
                                      .at("film");
      return s.sharding_type + " " + s.compute_kernel;
    } catch (const Error& e) {
      return e.what();
    }
  }
  static EmbeddingBagConfig film(const std::string& optimizer) {
    EmbeddingBagConfig t = table("film", 100, 16);
    t.optimizer.name = optimizer;
    return t;
  }
};

TEST_F(KernelsThatServe, AreAskedByNameAndByWhatTheySupport) {
  PlannerOptions options{.topology = Topology::of(2)};
  options.constraints["film"].sharding_types = {"data_parallel"};
  EXPECT_EQ(planned(options, film("exact_sgd")), "data_parallel dense");
  options.kernel = "fused_only";
  EXPECT_THAT(planned(options, film("exact_sgd")), AllOf(HasSubstr("table film has no sharding of types data_parallel"),
                                                         HasSubstr("fused_only serves only fused")));
  options.constraints["film"].sharding_types = {"data_parallel", "table_wise"};
  EXPECT_EQ(planned(options, film("exact_sgd")), "table_wise fused");
  EXPECT_THAT(planned(options, film("adam")), HasSubstr("fused_only: no optimizer but exact_sgd"));
  EXPECT_EQ(planned(options, film("")), "table_wise fused") << "the optimizer is chosen later";
  options.torchrec_limits = true;
  options.constraints["film"].sharding_types = {"table_wise"};
  EXPECT_EQ(planned(options, film("adam")), "table_wise fused") << "TorchRec's kernels, not ours";
}

TEST_F(KernelsThatServe, OneRankHasDataParallelOnlyWhereNothingElseIsAllowed) {
  PlannerOptions options;
  options.topology = Topology::of(1, 1, "cuda");  // by its typical figures, data-parallel is cheaper
  options.constraints["film"].sharding_types = {"data_parallel", "table_wise"};
  EXPECT_EQ(planned(options, film("exact_sgd")), "table_wise fused");
  options.constraints["film"].sharding_types = {"data_parallel"};
  EXPECT_EQ(planned(options, film("exact_sgd")), "data_parallel dense");
}

TEST_F(KernelsThatServe, AWholeTableOfOneRankIsTableWise) {
  PlannerOptions options{.topology = Topology::of(1)};
  EXPECT_EQ(planned(options, film("exact_sgd")), "table_wise fused") << "which column_wise costs as much as";
  options.constraints["film"].sharding_types = {"row_wise", "column_wise"};
  EXPECT_EQ(planned(options, film("exact_sgd")), "column_wise fused");
}

TEST_F(KernelsThatServe, ErrorsAreThoseOfAJob) {
  PlannerOptions options{.topology = Topology::of(2)};
  EXPECT_THAT(planned(options, film("sgd_of_old")), HasSubstr("\"sgd_of_old\"; the nearest is"));
  options.kernel = "nonsense";
  EXPECT_THAT(planned(options, film("adam")),
              AllOf(HasSubstr("\"nonsense\"; the nearest is"), HasSubstr("\"reference\"")));
  options.kernel = "reference?trheads=2";
  EXPECT_THAT(planned(options, film("adam")), HasSubstr("\"trheads\""));
  options.kernel = "reference";
  options.topology = Topology::of(2, 2, "cuda");
  EXPECT_THAT(planned(options, film("adam")), HasSubstr("kernel \"reference\" does not run on cuda"));
  options.kernel = "auto";
  options.constraints["film"].sharding_types = {"row_wise"};
  EXPECT_EQ(planned(options, film("adam")), "row_wise fused") << "planned for another machine";
}

}  // namespace
}  // namespace tessera
