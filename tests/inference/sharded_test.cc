// A model over ranks: the same scores as in one process, ranks that end together, and ranks that are lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "inference/test_model.h"
#include "spawn.h"
#include "tessera/sharding.h"

namespace tessera::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr double kTimeout = 60;

struct Ranks {
  int world = 2;
  double group_timeout_s = 30;
  // Sharding of every table; empty: the planner chooses.
  std::function<ShardingRequest(const EmbeddingBagConfig&, const Topology&)> sharding;
};

// Rank 0 runs `ask`; the others serve, or run `instead`. Returns the texts of all.
std::vector<std::string> run(const Ranks& ranks, const std::string& directory,
                             const std::function<std::string(ShardedPredictor&)>& ask,
                             const std::function<void()>& instead = {}) {
  return cli::run_in_ranks(ranks.world, ranks.world, kTimeout, [&](const RankEnvironment& where) -> std::string {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = ranks.group_timeout_s});
    ShardedPredictorOptions options{.keep_alive_s = 0.2};
    if (ranks.sharding) {
      const Topology topology = Topology::of(ranks.world);
      std::map<std::string, ShardingRequest> requests;
      for (const EmbeddingBagConfig& t : small_tables()) requests[t.name] = ranks.sharding(t, topology);
      options.plan = construct_module_sharding_plan(runtime, small_tables(), requests, topology);
    }
    const auto predictor = open_sharded_predictor(runtime, directory, group, options);
    if (group->rank() == 0) return ask(*predictor);
    if (instead)
      instead();
    else
      predictor->serve_shard();
    return "served";
  });
}

std::string text_of(const std::vector<float>& scores) {
  std::ostringstream out;
  out.precision(9);
  for (const float s : scores) out << s << ' ';
  return out.str();
}

class Sharded : public testing::Test {
 protected:
  Sharded() {
    pack_model(small_model(folder_, {.bounds_check = BoundsCheckMode::kIgnore}).model, folder_.file("model"),
               {.format = RowFormat::kInt8, .formats = {{"film", RowFormat::kFloat16}}});
  }
  // The scores of several batches.
  static std::string ask(Predictor& predictor) {
    std::string out;
    for (const int64_t batch : {1, 13, 0, 40}) {
      OwnInput input(predictor.model(), batch, static_cast<uint32_t>(batch));
      if (batch == 40) input.values[3][1] = 5000;  // tag, a mean: the id is left out
      out += text_of(scores_of(predictor, input.view()));
    }
    for (const uint64_t n : predictor.stats().bad_ids) out += str_cat(n, ' ');
    return out + str_cat(predictor.stats().predictions, ' ', predictor.stats().samples);
  }
  std::string alone() {
    const Runtime runtime;
    return ask(*open_predictor(runtime, folder_.file("model")));
  }
  static void expect_close(const std::string& a, const std::string& b) {
    std::istringstream x(a), y(b);
    for (double u = 0, v = 0; x >> u;) {
      ASSERT_TRUE(y >> v);
      EXPECT_NEAR(u, v, 2e-6);
    }
  }
  ModelFolder folder_;
};

TEST_F(Sharded, GivesTheScoresOfOneProcess) {
  const std::string expected = alone();
  const auto row = [](const EmbeddingBagConfig&, const Topology&) { return row_wise(); };
  const auto table = [](const EmbeddingBagConfig& t, const Topology& top) {
    return table_wise(static_cast<int>(t.name.size()) % top.world_size);
  };
  const auto mixed = [](const EmbeddingBagConfig& t, const Topology& top) {
    if (t.name == "film") return row_wise();
    if (t.name == "user") return column_wise({0, top.world_size - 1});
    return t.name == "tag" ? row_wise() : table_wise(top.world_size - 1);
  };
  const Ranks cases[] = {{1, 30, {}}, {2, 30, {}}, {2, 30, row}, {3, 30, table}, {2, 30, mixed}};
  for (const Ranks& ranks : cases) {
    const auto texts = run(ranks, folder_.file("model"), [](ShardedPredictor& p) { return ask(p); });
    expect_close(texts[0], expected);
    for (size_t r = 1; r < texts.size(); ++r) EXPECT_EQ(texts[r], "served");
  }
}

TEST_F(Sharded, WeightsTravelToo) {
  pack_model(small_model(folder_, {.is_weighted = true}).model, folder_.file("weighted"), {});
  const auto weighted = [](Predictor& p) {
    OwnInput with(p.model(), 20, 3, true), without(p.model(), 20, 4);
    return text_of(scores_of(p, with.view())) + text_of(scores_of(p, without.view()));
  };
  const auto texts = run({.world = 2}, folder_.file("weighted"), [&](ShardedPredictor& p) { return weighted(p); });
  const Runtime runtime;
  expect_close(texts[0], weighted(*open_predictor(runtime, folder_.file("weighted"))));
}

TEST_F(Sharded, RanksWaitLongerThanTheGroupsTimeout) {
  const auto texts = run({.world = 2, .group_timeout_s = 6}, folder_.file("model"), [](ShardedPredictor& p) {
    std::this_thread::sleep_for(std::chrono::milliseconds(7500));
    return ask(p);
  });
  expect_close(texts[0], alone());
}

TEST_F(Sharded, ThreadsOfRank0TakeTurns) {
  const auto texts = run({.world = 2}, folder_.file("model"), [](ShardedPredictor& p) {
    OwnInput input(p.model(), 8, 2);
    const auto expected = scores_of(p, input.view());
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        OwnInput mine = input;
        for (int i = 0; i < 50; ++i) wrong += scores_of(p, mine.view()) != expected;
      });
    }
    for (std::thread& t : threads) t.join();
    return str_cat(wrong.load(), " wrong");
  });
  EXPECT_EQ(texts[0], "0 wrong");
}

// Rank 0 asks until that fails, then once more.
std::string ask_until_lost(ShardedPredictor& predictor) {
  OwnInput input(predictor.model(), 4, 1);
  for (int i = 0; i < 400; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto failure = failure_of([&] { (void)scores_of(predictor, input.view()); });
    if (failure.second == Code::kOk) continue;
    const auto again = failure_of([&] { (void)scores_of(predictor, input.view()); });
    return str_cat(static_cast<int>(failure.second), ' ', failure.first, " | ", static_cast<int>(again.second), ' ',
                   predictor.usable() ? "usable" : "unusable");
  }
  return "never lost";
}

TEST_F(Sharded, ALostRankIsUnavailableWithinTheDeadline) {
  const std::function<void()> ways[] = {[] {},  // its connections close
                                        [] { std::this_thread::sleep_for(std::chrono::seconds(14)); }};  // silence
  for (const auto& lost : ways) {
    const auto texts = run({.world = 2, .group_timeout_s = 6}, folder_.file("model"), ask_until_lost, lost);
    EXPECT_THAT(texts[0], AllOf(StartsWith(str_cat(TSR_UNAVAILABLE, " the sharded model has lost a rank")),
                                HasSubstr("rank 1"), HasSubstr(str_cat("| ", TSR_UNAVAILABLE, " unusable"))));
  }
}

TEST_F(Sharded, StatsDoNotWaitForASilentRank) {
  const auto texts = run(
      {.world = 2, .group_timeout_s = 6}, folder_.file("model"),
      [](ShardedPredictor& p) -> std::string {
        OwnInput input(p.model(), 4, 1);
        std::atomic<bool> failed{false};
        std::thread asking([&] {
          (void)failure_of([&] { (void)scores_of(p, input.view()); });
          failed = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it is now waiting for the rank
        (void)p.stats();
        const bool waited = failed;
        asking.join();
        return waited ? "waited" : "at once";
      },
      [] { std::this_thread::sleep_for(std::chrono::seconds(9)); });
  EXPECT_EQ(texts[0], "at once");
}

TEST_F(Sharded, AllRanksLearnThatOneHasAnotherModel) {
  pack_model(small_model(folder_).model, folder_.file("other"), {.format = RowFormat::kInt4});
  const auto texts = cli::run_in_ranks(2, 2, kTimeout, [&](const RankEnvironment& where) {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 30});
    const auto open = [&](const std::string& name) {
      return failure_of([&] { open_sharded_predictor(runtime, folder_.file(name), group); }).first;
    };
    return open(group->rank() == 0 ? "model" : "other") + "\n" + open(group->rank() == 0 ? "model" : "nowhere");
  });
  for (const std::string& text : texts) {
    EXPECT_THAT(text, AllOf(StartsWith("rank 1 has version "), HasSubstr("rank 1: there is no packed model at")));
  }
}

TEST_F(Sharded, OnlyRank0Predicts) {
  const auto texts = cli::run_in_ranks(2, 2, kTimeout, [&](const RankEnvironment& where) {
    const Runtime runtime;
    const auto group = ProcessGroup::connect(runtime, where, {.backend = "tcp", .timeout_s = 30});
    const auto predictor = open_sharded_predictor(runtime, folder_.file("model"), group);
    OwnInput input(predictor->model(), 2, 1);
    if (group->rank() == 0) return failure_of([&] { predictor->serve_shard(); }).first;
    std::string said = failure_of([&] { (void)scores_of(*predictor, input.view()); }).first;
    predictor->serve_shard();
    return said;
  });
  EXPECT_THAT(texts[0], HasSubstr("serve_shard() is for the other ranks"));
  EXPECT_THAT(texts[1], HasSubstr("rank 0 predicts, and this is rank 1"));
}

}  // namespace
}  // namespace tessera::test
