// Four ranks on two hosts: exchanges carry what the plan predicts, and rows of host sums cross between hosts once per
// bag.
#include <gtest/gtest.h>

#include "sharded.h"
#include "spawn.h"
#include "tessera/embedding_modules.h"
#include "tessera/step_figures.h"

namespace tessera::test::traffic_test {
namespace {

constexpr int kWorld = 4, kLocal = 2;
constexpr int64_t kRows = 40, kDim = 8, kBatch = 37, kIds = 6;

std::vector<EmbeddingBagConfig> tables_for(const std::vector<std::string>& types) {
  std::vector<EmbeddingBagConfig> out;
  for (size_t t = 0; t < types.size(); ++t) {
    EmbeddingBagConfig c{.name = str_cat("t", t),
                         .num_embeddings = kRows,
                         .embedding_dim = kDim,
                         .feature_names = {str_cat("f", t)},
                         .pooling = t % 2 ? PoolingType::kMean : PoolingType::kSum};
    out.push_back(std::move(c));
  }
  return out;
}

EmbeddingModuleShardingPlan plan_for(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                     const std::vector<std::string>& types) {
  return plan_of(runtime, tables, Topology::of(kWorld, kLocal, "cpu"), types);
}

// Every bag has kIds ids, at least one in every row shard, so that no bag is empty anywhere.
KeyedJaggedTensor full_batch(size_t features, int rank) {
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  for (size_t f = 0; f < features; ++f) {
    keys.push_back(str_cat("f", f));
    for (int64_t b = 0; b < kBatch; ++b) {
      for (int64_t i = 0; i < kIds; ++i) ids.push_back((i * kRows / kIds + (b + rank) % 3) % kRows);
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(
      keys, Tensor::from(ids),
      Tensor::from(std::vector<int32_t>(features * static_cast<size_t>(kBatch), static_cast<int32_t>(kIds))));
}

std::string text_of(const char* what, const HostBytes<int64_t>& counted, const HostBytes<double>& expected) {
  if (static_cast<double>(counted.in_host) == expected.in_host &&
      static_cast<double>(counted.across_hosts) == expected.across_hosts)
    return {};
  return str_cat(what, ": ", counted.in_host, " bytes inside the host and ", counted.across_hosts, " across, expected ",
                 expected.in_host, " and ", expected.across_hosts, "\n");
}

std::string run_rank(const RankEnvironment& where, const std::vector<std::string>& types, JoinExchanges join) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where, {.join_exchanges = join});
  const auto tables = tables_for(types);
  const auto plan = plan_for(runtime, tables, types);
  const ShardedModuleOptions options{.optimizer = {"exact_sgd", R"({"learning_rate": 0.1})", 0}};
  auto sharded = EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group);
  EmbeddingBagCollection whole(runtime, {.tables = tables, .optimizer = options.optimizer});
  const KeyedJaggedTensor batch = full_batch(types.size(), where.rank);
  const auto out = sharded.forward(batch).wait();
  const KeyedTensor want = whole.forward(batch);
  std::string errors = difference("the output", out.values.values(), want.values(), 1e-5);
  Tensor grad = Tensor::empty(want.values().shape());
  grad.fill(1);
  sharded.backward(out, grad);
  TrafficInput input{.world_size = kWorld, .local_world_size = kLocal, .batch = kBatch, .joins = group->joins()};
  for (size_t f = 0; f < types.size(); ++f) input.ids_per_bag[str_cat("f", f)] = kIds;
  const auto expected = expected_traffic(tables, plan, input, where.rank);
  const ExchangeBytes<int64_t>& counted = sharded.bytes_sent();
  if (!(counted == sharded.last_traffic().bytes)) errors += "one step is not all steps\n";
  group->barrier();
  return errors + text_of("ids", counted.ids, expected.ids) + text_of("rows", counted.rows, expected.rows) +
         text_of("gradients", counted.gradients, expected.gradients);
}

class Traffic : public testing::TestWithParam<std::tuple<std::vector<std::string>, JoinExchanges>> {};

TEST_P(Traffic, IsWhatThePlanLetsExpect) {
  const auto out = cli::run_in_ranks(kWorld, kLocal, 60, [&](const RankEnvironment& where) {
    return run_rank(where, std::get<0>(GetParam()), std::get<1>(GetParam()));
  });
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

// Rows that are not divided: exact for any ids. (Row splits are an expectation: below.)
INSTANTIATE_TEST_SUITE_P(Types, Traffic,
                         testing::Combine(testing::Values(std::vector<std::string>{"table_wise"},
                                                          std::vector<std::string>{"column_wise", "data_parallel"},
                                                          std::vector<std::string>{"table_column_wise", "table_wise"}),
                                          testing::Values(JoinExchanges::kNever, JoinExchanges::kAlways)));

// The first step has no inline payload; the second has space for what the first one needed.
TEST(TrafficOfRoom, ThatIsNotUsedIsCounted) {
  const auto out = cli::run_in_ranks(kWorld, kLocal, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    const auto tables = tables_for({"table_wise"});
    auto sharded = EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}})
                       .shard(tables, plan_for(runtime, tables, {"table_wise"}), group);
    std::string text;
    for (int step = 0; step < 2; ++step) {
      sharded.forward(full_batch(1, where.rank), false, /*keep_for_backward=*/false).wait();
      const StepTraffic& traffic = sharded.last_traffic();
      const auto& [ids, rows, gradients, unused_inline, wanted, sent_ids] = traffic.bytes;
      const int64_t sent = ids.in_host + ids.across_hosts + unused_inline.in_host + unused_inline.across_hosts;
      int64_t payloads = 0;
      for (int peer = 0; peer < kWorld; ++peer) payloads += peer == where.rank ? 0 : traffic.ids_sent[peer];
      const bool whole = sent == (kWorld - 1) * traffic.first_message + (traffic.ids_in_second ? payloads : 0);
      text += str_cat(traffic.ids_in_second ? "two exchanges" : "one exchange", whole ? "" : ", miscounted",
                      unused_inline.in_host > 0 && unused_inline.across_hosts > 0 ? ", room" : "", "; ");
    }
    group->barrier();
    return text;
  });
  for (const std::string& text : out) EXPECT_EQ(text, "two exchanges; one exchange, room; ");
}

// Bytes of rows and gradients across hosts, over all ranks.
int64_t across_hosts(const std::vector<std::string>& types) {
  int64_t total = 0;
  const auto out = cli::run_in_ranks(kWorld, kLocal, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    const auto tables = tables_for(types);
    auto sharded = EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}})
                       .shard(tables, plan_for(runtime, tables, types), group);
    const auto result = sharded.forward(full_batch(types.size(), where.rank)).wait();
    Tensor grad = Tensor::empty(result.values.values().shape());
    grad.fill(1);
    sharded.backward(result, grad);
    group->barrier();
    const ExchangeBytes<int64_t>& sent = sharded.bytes_sent();
    return std::to_string(sent.rows.across_hosts + sent.gradients.across_hosts);
  });
  for (const std::string& bytes : out) total += std::stoll(bytes);
  return total;
}

TEST(TrafficAcrossHosts, AHostSumCrossesOncePerBag) {
  // Two homes on the other host, one row of the whole table each, there and back.
  constexpr int64_t kOnce = 2 * kBatch * kDim * static_cast<int64_t>(sizeof(float)) * 2;
  EXPECT_EQ(across_hosts({"table_row_wise"}), kOnce);
  EXPECT_EQ(across_hosts({"grid_shard"}), kOnce);
  EXPECT_EQ(across_hosts({"table_row_wise", "table_wise"}), 2 * kOnce);
  // Each of the four shards has ids of every bag and sends its own row to the two homes on the other host.
  EXPECT_EQ(across_hosts({"row_wise"}), 4 * kOnce);
}

TEST(TrafficAcrossHosts, IsPredictedWithinHostsThatHoldAllRows) {
  const auto out = cli::run_in_ranks(kWorld, kLocal, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    const std::vector<std::string> types = {"table_row_wise", "grid_shard", "table_wise", "column_wise"};
    const auto tables = tables_for(types);
    const auto plan = plan_for(runtime, tables, types);
    auto sharded =
        EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
    const auto result = sharded.forward(full_batch(types.size(), where.rank)).wait();
    TrafficInput input{.world_size = kWorld, .local_world_size = kLocal, .batch = kBatch};
    for (size_t f = 0; f < types.size(); ++f) input.ids_per_bag[str_cat("f", f)] = kIds;
    const auto expected = expected_traffic(tables, plan, input, where.rank);
    const auto& counted = sharded.last_traffic().bytes;
    group->barrier();
    return str_cat(static_cast<double>(counted.rows.across_hosts) == expected.rows.across_hosts, " ",
                   static_cast<double>(counted.gradients.across_hosts) == expected.gradients.across_hosts, " ",
                   counted.rows.across_hosts > 0 || counted.gradients.across_hosts > 0);
  });
  for (const std::string& text : out) EXPECT_EQ(text, "1 1 1");
}

TEST(TrafficExpected, BatchesThatDifferCountByTheirMean) {
  const Runtime runtime;
  const auto tables = tables_for({"table_wise", "column_wise"});
  const auto plan = plan_for(runtime, tables, {"table_wise", "column_wise"});
  const auto of = [&](double batch) {
    return expected_traffic(tables, plan, {.world_size = kWorld, .local_world_size = kLocal, .batch = batch}, 0);
  };
  const auto few = of(50), mean = of(50.5), many = of(51);
  EXPECT_GT(mean.rows.in_host + mean.gradients.in_host, few.rows.in_host + few.gradients.in_host);
  EXPECT_DOUBLE_EQ(2 * mean.rows.in_host, few.rows.in_host + many.rows.in_host);
  EXPECT_DOUBLE_EQ(2 * mean.gradients.in_host, few.gradients.in_host + many.gradients.in_host);
}

TEST(TrafficErrors, AWorldThatHostsDoNotDivideIsRefused) {
  const Runtime runtime;
  const auto tables = tables_for({"table_wise"});
  const auto plan = plan_for(runtime, tables, {"table_wise"});
  EXPECT_THROW(expected_traffic(tables, plan, {.world_size = 4, .local_world_size = 3, .batch = 1}, 0), Error);
  EXPECT_THROW(expected_traffic(tables, plan, {.world_size = 4, .local_world_size = 2, .batch = 1}, 4), Error);
}

}  // namespace
}  // namespace tessera::test::traffic_test
