// Rows that a batch repeats travel once: the same outputs and tables as if each id travelled, with fewer bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "config/test_refusal.h"
#include "sharded.h"
#include "spawn.h"
#include "tessera/step_figures.h"

namespace tessera::test::once_test {
namespace {

constexpr int64_t kRows = 600, kDim = 16, kSamples = 50;

struct Case {
  int world, local;
  std::string type;
  PoolingType pooling;  // kNone: sequences
};

bool sequences(const Case& of) { return of.pooling == PoolingType::kNone; }

// Two features share the first table.
std::vector<EmbeddingBagConfig> tables_for(const Case& of, bool once) {
  std::vector<EmbeddingBagConfig> out(2);
  for (size_t t = 0; t < out.size(); ++t) {
    out[t].name = str_cat("t", t);
    out[t].num_embeddings = kRows;
    out[t].embedding_dim = kDim;
    out[t].pooling = of.pooling;
    out[t].use_index_dedup = once;
  }
  out[0].feature_names = {"a", "b"};
  out[1].feature_names = {"c"};
  return out;
}

EmbeddingModuleShardingPlan plan_for(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                     const Case& of) {
  return plan_of(runtime, tables, Topology::of(of.world, of.local, "cpu"), {of.type}, {.min_partition = 8});
}

// Ids that mostly repeat; in step 1 rank 0 has no samples, in step 2 all ids differ. Samples have 0 to 5 ids, or one
// at most if rows are pooled. Some ids are out of range.
KeyedJaggedTensor batch_of(const Case& of, int rank, int step) {
  return bags_of(
      tables_for(of, false), step == 1 && rank == 0 ? 0 : kSamples + rank,
      [&](int64_t f, int64_t b) { return sequences(of) ? (b * 7 + f) % 6 : (b + f) % 5 != 0; },
      [&, next = int64_t{0}](int64_t, int64_t, int64_t) mutable {
        const int64_t n = next++;
        return step == 2 ? n * 7 % kRows : n % 29 == 28 ? kRows + n : n * n * n % (17 + rank) * 30;
      });
}

// Multiples of a quarter, whose sums are exact in any order.
Tensor gradient(const Shape& shape, int step) {
  Tensor out = Tensor::empty(shape);
  for (int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = static_cast<float>((i * 7 + step) % 9 - 4) / 4;
  return out;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() &&
         (a.numel() == 0 || std::memcmp(a.data<float>(), b.data<float>(), sizeof(float) * a.numel()) == 0);
}

// One step; the rows that it looked up.
std::vector<Tensor> step_of(ShardedEmbeddingCollection& c, const KeyedJaggedTensor& batch, int step, bool train) {
  const auto out = c.forward(batch, false, train).wait();
  std::vector<Tensor> rows;
  std::vector<std::pair<std::string, Tensor>> grads;
  for (const auto& [name, value] : out.values) {
    rows.push_back(value.values().clone());
    grads.emplace_back(name, gradient(value.values().shape(), step));
  }
  if (train) c.backward(out, grads);
  return rows;
}

std::vector<Tensor> step_of(ShardedEmbeddingBagCollection& c, const KeyedJaggedTensor& batch, int step, bool train) {
  const auto out = c.forward(batch, false, train).wait();
  const Tensor values = out.values.values().clone();
  if (train) c.backward(out, gradient(values.shape(), step));
  return {values};
}

template <class Sharder>
std::string compare(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group, const Case& of) {
  const int rank = group->rank();
  const ShardedModuleOptions options{.optimizer = {"exact_sgd", R"({"learning_rate": 0.5})", 0},
                                     .bounds_check = BoundsCheckMode::kIgnore};
  const auto plan = plan_for(runtime, tables_for(of, false), of);
  auto each = Sharder(runtime, options).shard(tables_for(of, false), plan, group);
  auto once = Sharder(runtime, options).shard(tables_for(of, true), plan, group);
  std::string errors;
  for (const bool train : {true, false}) {
    for (int step = 0; step < 4; ++step) {
      const KeyedJaggedTensor batch = batch_of(of, rank, step);
      const auto want = step_of(each, batch, step, train), got = step_of(once, batch, step, train);
      for (size_t i = 0; i < want.size(); ++i) {
        if (!same(want[i], got[i])) errors += str_cat("output ", i, " of step ", step, " differs\n");
      }
      const ExchangeBytes<int64_t>&a = each.last_traffic().bytes, &b = once.last_traffic().bytes;
      if (!train && (a.ids != b.ids || a.rows != b.rows || a.ids_sent != b.ids_sent))
        errors += "evaluations of both send repeated rows once\n";
      const bool fewer = b.ids_sent < b.ids_wanted;
      if (train && a.ids_sent != a.ids_wanted) errors += "without the option all ids travel\n";
      const bool other_rows = of.world > 1 && of.type != "data_parallel" && b.ids_wanted > 100;
      // Rows that hosts add up do not repeat.
      if (other_rows && step == 0 && !fewer && (sequences(of) || of.local == of.world))
        errors += str_cat("step ", step, ": all ", b.ids_wanted, " ids travelled\n");
      if (step == 2 && b.ids_sent != b.ids_wanted) errors += "ids that differ were left out\n";
    }
  }
  for (const HeldShard& shard : each.held_shards()) {
    if (!same(each.weight(shard), once.weight(shard))) errors += str_cat("table ", shard.table, " differs\n");
  }
  group->barrier();
  return errors;
}

class Once : public testing::TestWithParam<Case> {};

TEST_P(Once, GivesTheSameOutputsAndTables) {
  const Case& of = GetParam();
  const auto out = cli::run_in_ranks(of.world, of.local, 60, [&](const RankEnvironment& where) {
    const Runtime runtime({.threads = 2});
    const auto group = ProcessGroup::connect(runtime, where);
    return sequences(of) ? compare<EmbeddingCollectionSharder>(runtime, group, of)
                         : compare<EmbeddingBagCollectionSharder>(runtime, group, of);
  });
  for (size_t r = 0; r < out.size(); ++r) EXPECT_EQ(out[r], "") << "rank " << r;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* type : {"table_wise", "row_wise", "column_wise", "table_row_wise", "table_column_wise", "grid_shard",
                           "data_parallel"}) {
    for (const auto& [world, local] : {std::pair(1, 1), {2, 2}, {4, 2}}) {
      for (const PoolingType pooling : {PoolingType::kNone, PoolingType::kSum, PoolingType::kMean})
        out.push_back({world, local, type, pooling});
    }
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Types, Once, testing::ValuesIn(cases()), [](const auto& info) {
  const Case& of = info.param;
  return str_cat(of.type, "_", of.world, "_", to_string(of.pooling));
});

// Each rank's batch of one feature with few different ids, and what the other rank sends for it.
TEST(OnceBytes, AreThoseOfTheDistinctRows) {
  const Case of{2, 2, "row_wise", PoolingType::kNone};
  const auto ids_of = [](int rank) {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 4000; ++i) ids.push_back(i * i % (41 + 5 * rank) * 12);
    return ids;
  };
  const auto out = cli::run_in_ranks(2, 2, 60, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where);
    auto tables = tables_for(of, true);
    tables.pop_back();
    tables[0].feature_names = {"a"};
    const auto plan = plan_for(runtime, tables, of);
    auto sharded =
        EmbeddingCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
    const auto batch = [&](int rank) {
      return KeyedJaggedTensor::from_lengths_sync({"a"}, Tensor::from(ids_of(rank)),
                                                  Tensor::from(std::vector<int32_t>(20, 200)));
    };
    step_of(sharded, batch(where.rank), 0, true);
    // Rows of the half that `owner` has, of the other rank's batch.
    const auto distinct = [&](int owner) {
      std::set<int64_t> rows;
      for (const int64_t id : ids_of(1 - owner)) {
        if (id / (kRows / 2) == owner) rows.insert(id);
      }
      return static_cast<int64_t>(rows.size());
    };
    const ExchangeBytes<int64_t>& sent = sharded.last_traffic().bytes;
    const int64_t row = kDim * static_cast<int64_t>(sizeof(float)), mine = distinct(where.rank),
                  theirs = distinct(1 - where.rank);
    group->barrier();
    return str_cat(sent.rows.in_host - mine * row, " ", sent.gradients.in_host - theirs * row, " ",
                   sent.ids_sent - theirs, " ", mine > 5 && mine < 40);
  });
  for (const std::string& text : out) EXPECT_EQ(text, "0 0 0 1");
}

TEST(OnceOptions, ThatItCannotKeepAreRefused) {
  const auto refused = [](const ShardedModuleOptions& options) {
    const Runtime runtime;
    const Case of{1, 1, "table_wise", PoolingType::kSum};
    const auto tables = tables_for(of, true);
    return test::refusal([&] {
      EmbeddingBagCollectionSharder(runtime, options)
          .shard(tables, plan_for(runtime, tables, of), ProcessGroup::connect(runtime, {}));
    });
  };
  EXPECT_THAT(refused({.optimizer = {"exact_sgd", "{}", 1}}),
              testing::HasSubstr("table \"t0\": use_index_dedup adds gradients up before max_gradient"));
  EXPECT_THAT(refused({.optimizer = {"exact_sgd", "{}", 0}, .is_weighted = true}),
              testing::HasSubstr("use_index_dedup does not work for ids with weights"));
}

}  // namespace
}  // namespace tessera::test::once_test
