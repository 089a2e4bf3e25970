// Eight ranks on two hosts of four: joined exchanges bring the same bits as direct ones, with fewer messages. A rank
// that dies in one ends it for all others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "config/fnv1a.h"
#include "config/test_refusal.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/step_figures.h"

namespace tessera::test::joined_test {
namespace {

constexpr int kWorld = 8, kLocal = 4;
constexpr int64_t kTableRows = 60, kDim = 8;
constexpr const char* kPooled[] = {"table_wise", "column_wise",    "row_wise",         "data_parallel",
                                   "grid_shard", "table_row_wise", "table_column_wise"};
constexpr const char* kSequences[] = {"table_wise", "row_wise", "column_wise"};

std::vector<EmbeddingBagConfig> tables(std::span<const char* const> types, bool pooled) {
  std::vector<EmbeddingBagConfig> out;
  for (const char* type : types) {
    EmbeddingBagConfig& c = out.emplace_back();
    c.name = type;
    c.num_embeddings = kTableRows;
    c.embedding_dim = kDim;
    c.feature_names = {str_cat("f_", type)};
    c.pooling = !pooled ? PoolingType::kNone : out.size() % 2 ? PoolingType::kSum : PoolingType::kMean;
    c.use_index_dedup = out.size() == 3;
  }
  return out;
}

EmbeddingModuleShardingPlan plan(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables, int local) {
  return plan_of(runtime, tables, Topology::of(kWorld, local, "cpu"), {}, {.min_partition = 2});
}

// Ranks have other numbers of samples and ids; one has none in some steps.
KeyedJaggedTensor batch_of(const std::vector<EmbeddingBagConfig>& tables, int rank, int step) {
  return bags_of(
      tables, step % 2 && rank == 3 ? 0 : 5 + rank % 3, [&](int64_t, int64_t b) { return (b + rank + step) % 4; },
      [&](int64_t, int64_t b, int64_t i) { return (7 * rank + 11 * b + 5 * i * i + step) % kTableRows; });
}

Tensor gradient_like(const Tensor& values, int rank) {
  Tensor out = Tensor::empty(values.shape());
  for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = static_cast<float>((i * 37 + rank) % 19) / 19;
  return out;
}

uint64_t mixed(uint64_t hash, const Tensor& t) {
  return fnv1a(std::string_view(static_cast<const char*>(t.raw()), t.bytes()), hash);
}

struct Outcome {
  uint64_t bits = 0;  // of all outputs
  int64_t messages = 0, across = 0;
  bool joined_ids = false, joined_rows = false;  // in two exchanges
};

// Both kinds of collection, over some steps that change the tables.
Outcome run_steps(const RankEnvironment& where, JoinExchanges join, int local) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where, {.join_exchanges = join});
  const ShardedModuleOptions options{.optimizer = {"exact_adagrad", R"({"learning_rate": 0.1})", 0}};
  const auto pooled_tables = tables(kPooled, true), sequence_tables = tables(kSequences, false);
  auto pooled =
      EmbeddingBagCollectionSharder(runtime, options).shard(pooled_tables, plan(runtime, pooled_tables, local), group);
  auto sequences =
      EmbeddingCollectionSharder(runtime, options).shard(sequence_tables, plan(runtime, sequence_tables, local), group);
  Outcome out;
  const auto count = [&](const std::vector<StepExchange>& exchanges) {
    out.messages += messages_of(exchanges, where.rank);
    for (const StepExchange& exchange : exchanges) {
      out.joined_ids |= std::string_view(exchange.name) == "ids of a row";
      out.joined_rows |= std::string_view(exchange.name) == "rows of a column";
      for (int peer = 0; peer < kWorld; ++peer)
        out.across += peer / local != where.rank / local && exchange.sent[peer] > 0;
    }
  };
  for (int step = 0; step < 4; ++step) {
    auto rows = pooled.forward(batch_of(pooled_tables, where.rank, step)).wait();
    auto lists = sequences.forward(batch_of(sequence_tables, where.rank, step)).wait();
    out.bits = mixed(out.bits, rows.values.values());
    pooled.backward(rows, gradient_like(rows.values.values(), where.rank));
    std::vector<std::pair<std::string, Tensor>> grads;
    for (const auto& [name, list] : lists.values) {
      out.bits = mixed(out.bits, list.values());
      grads.emplace_back(name, gradient_like(list.values(), where.rank));
    }
    sequences.backward(lists, grads);
    count(pooled.last_exchanges());
    count(sequences.last_exchanges());
  }
  group->barrier();
  return out;
}

std::vector<Outcome> run_all(JoinExchanges join, int local) {
  const auto texts = cli::run_in_ranks(kWorld, local, 120, [&](const RankEnvironment& where) {
    const Outcome out = run_steps(where, join, local);
    return std::string(reinterpret_cast<const char*>(&out), sizeof(out));
  });
  std::vector<Outcome> out(texts.size());
  for (size_t r = 0; r < out.size(); ++r) std::memcpy(&out[r], texts[r].data(), sizeof(Outcome));
  return out;
}

class Joined : public testing::TestWithParam<int> {};  // ranks of a host

TEST_P(Joined, ExchangesHaveTheSameBitsAndFewerMessages) {
  const auto direct = run_all(JoinExchanges::kNever, GetParam()), joined = run_all(JoinExchanges::kAlways, GetParam());
  for (size_t r = 0; r < direct.size(); ++r) {
    EXPECT_EQ(direct[r].bits, joined[r].bits) << "rank " << r;
    EXPECT_LT(joined[r].messages, direct[r].messages) << "rank " << r;
    if (GetParam() < kWorld) {
      EXPECT_LT(joined[r].across, direct[r].across) << "rank " << r;
    }
    EXPECT_TRUE(joined[r].joined_ids && joined[r].joined_rows);
    EXPECT_FALSE(direct[r].joined_ids || direct[r].joined_rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, Joined, testing::Values(1, 2, kLocal, kWorld));

std::string refusal(int world, const ProcessGroupOptions& options) {
  const auto said = cli::run_in_ranks(world, world, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, options);
    const auto all = tables(std::span(kPooled).first(1), true);
    const auto plan = plan_of(runtime, all, Topology::of(world));
    return test::refusal(
        [&] {
          EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(all, plan, group);
        },
        "nothing");
  });
  for (const std::string& text : said) EXPECT_EQ(text, said[0]);
  return said[0];
}

TEST(Joins, AlwaysIsRefusedWhereNothingCanBeJoined) {
  EXPECT_EQ(refusal(3, {.join_exchanges = JoinExchanges::kAlways}),
            "comm.join_exchanges = \"always\": 3 ranks, 3 on each host, form no grid: use \"auto\"");
  EXPECT_EQ(refusal(4, {.lossy_rows = true, .join_exchanges = JoinExchanges::kAlways}),
            "comm.join_exchanges = \"always\": rows that comm.lossy names are not joined: use \"auto\"");
  EXPECT_EQ(refusal(3, {.join_exchanges = JoinExchanges::kAuto}), "nothing");
}

// The dead rank is a relay for others in every exchange.
TEST(Joins, ADeadRankEndsAllOthers) {
  char file[] = "/tmp/tessera_joined_XXXXXX";
  const int fd = mkstemp(file);
  ASSERT_GE(fd, 0);
  const auto note = [&](const std::string& text) { ASSERT_EQ(write(fd, text.data(), text.size()), std::ssize(text)); };
  EXPECT_ANY_THROW(cli::run_in_ranks(kWorld, kLocal, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group =
        ProcessGroup::connect(runtime, where, {.timeout_s = 20, .join_exchanges = JoinExchanges::kAlways});
    const auto all = tables(std::span(kPooled).first(3), true);
    auto sharded = EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}})
                       .shard(all, plan(runtime, all, kLocal), group);
    for (int step = 0; step < 1000000; ++step) {
      if (step == 3 && where.rank == 5) raise(SIGKILL);
      try {
        auto out = sharded.forward(batch_of(all, where.rank, step)).wait();
        sharded.backward(out, gradient_like(out.values.values(), where.rank));
      } catch (const Error& e) {
        note(str_cat("rank ", where.rank, ": ", e.what(), "\n"));
        throw;
      }
    }
    return "";
  }));
  std::ifstream said(file);
  int lines = 0;
  for (std::string line; std::getline(said, line); ++lines) EXPECT_THAT(line, testing::HasSubstr("rank 5"));
  EXPECT_GE(lines, 1);
  close(fd);
  unlink(file);
}

}  // namespace
}  // namespace tessera::test::joined_test
