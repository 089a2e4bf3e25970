// 18 ranks, on six hosts of three and on one: step headers travel through a grid of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/test_refusal.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/step_figures.h"

namespace tessera::test::many_ranks_test {
namespace {

constexpr int kWorld = 18, kRows = 6, kColumns = 3;  // of the grid, in both cases
constexpr int64_t kTableRows = 40, kDim = 4, kBags = 3;
const std::vector<std::string> kTypes = {"table_wise", "row_wise", "column_wise", "table_row_wise"};

std::vector<EmbeddingBagConfig> tables() {
  std::vector<EmbeddingBagConfig> out;
  for (const std::string& type : kTypes) {
    EmbeddingBagConfig c{
        .name = type, .num_embeddings = kTableRows, .embedding_dim = kDim, .feature_names = {"f_" + type}};
    out.push_back(std::move(c));
  }
  return out;
}

// Each rank has other ids. `broken`: one of them is no row.
KeyedJaggedTensor batch_of(int rank, int step, bool broken) {
  return bags_of(
      tables(), kBags, [&](int64_t, int64_t b) { return (b + rank) % 3; },
      [&](int64_t, int64_t b, int64_t i) {
        return std::exchange(broken, false) ? kTableRows : (7 * rank + 11 * b + 5 * i + step) % kTableRows;
      });
}

struct Sharded {
  Sharded(const Runtime& runtime, std::shared_ptr<ProcessGroup> group, int local)
      : options{.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0}},
        whole(runtime, {.tables = tables(), .optimizer = options.optimizer}),
        sharded(EmbeddingBagCollectionSharder(runtime, options).shard(tables(), plan(runtime, local), group)) {}

  static EmbeddingModuleShardingPlan plan(const Runtime& runtime, int local) {
    return plan_of(runtime, tables(), Topology::of(kWorld, local, "cpu"), {}, {.min_partition = 2});
  }

  ShardedModuleOptions options;
  EmbeddingBagCollection whole;
  ShardedEmbeddingBagCollection sharded;
};

// The first step has a second exchange for the ids; the others send them after the headers.
std::string run_steps(const RankEnvironment& where, int local) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  Sharded both(runtime, group, local);
  std::string errors;
  for (int step = 0; step < 3; ++step) {
    const KeyedJaggedTensor batch = batch_of(where.rank, step, false);
    const KeyedTensor got = both.sharded.forward(batch, false, false).wait().values;
    const KeyedTensor want = both.whole.forward(batch);
    errors += difference("the output", got.values(), want.values(), 1e-5);
    const StepTraffic& traffic = both.sharded.last_traffic();
    const auto& ids = traffic.bytes.ids;
    const auto& others = traffic.bytes.unused_inline;
    int64_t payloads = 0;
    bool joined_ids = false, joined_rows = false;
    for (const StepExchange& exchange : both.sharded.last_exchanges()) {
      const std::string_view name = exchange.name;
      joined_ids |= name == "ids of a row";
      joined_rows |= name == "rows of a column";
      for (int peer = 0; name.starts_with("ids") && peer < kWorld; ++peer)
        payloads += peer == where.rank ? 0 : exchange.sent[peer];
    }
    const int64_t sent = ids.in_host + ids.across_hosts + others.in_host + others.across_hosts;
    const int64_t blocks = 2 * kWorld - kRows - kColumns;
    if (sent != blocks * traffic.first_message + (traffic.ids_in_second ? payloads : 0)) errors += "miscounted\n";
    if (step > 0 && (others.in_host < 0 || others.across_hosts < 0)) errors += "a count is negative\n";
    if (traffic.ids_in_second != (step == 0)) errors += "the ids went another way\n";
    if (joined_ids != (step == 0) || !joined_rows) errors += "messages were not joined\n";
  }
  group->barrier();
  return errors;
}

class ManyRanks : public testing::TestWithParam<int> {};  // ranks of a host

TEST_P(ManyRanks, GetTheRowsOfAllOthers) {
  const auto out = cli::run_in_ranks(kWorld, GetParam(), 120,
                                     [](const RankEnvironment& where) { return run_steps(where, GetParam()); });
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

TEST_P(ManyRanks, HearOfABrokenBatchAndGoOn) {
  const auto out = cli::run_in_ranks(kWorld, GetParam(), 120, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    Sharded both(runtime, group, GetParam());
    const std::string said = test::refusal(
        [&] { both.sharded.forward(batch_of(where.rank, 0, where.rank == 7), false, false).wait(); }, "nothing");
    both.sharded.forward(batch_of(where.rank, 1, false), false, false).wait();
    group->barrier();
    return said;
  });
  for (const std::string& said : out) EXPECT_THAT(said, testing::HasSubstr("rank 7: "));
}

INSTANTIATE_TEST_SUITE_P(Hosts, ManyRanks, testing::Values(3, kWorld));

}  // namespace
}  // namespace tessera::test::many_ranks_test
