// Ids arrive damaged on one rank: it reports the error, and no other rank waits for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "config/test_refusal.h"
#include "spawn.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"

namespace tessera::test::damaged_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

constexpr double kTimeout_s = 40;

std::shared_ptr<ProcessGroup> connect(const Runtime& runtime, const RankEnvironment& where, const std::string& damage) {
  return ProcessGroup::connect(runtime, where,
                               {.backend = "test.damaging?" + damage + "(tcp)", .timeout_s = kTimeout_s});
}

ShardedEmbeddingBagCollection shard(const Runtime& runtime, const std::shared_ptr<ProcessGroup>& group,
                                    const ShardingRequest& how) {
  const std::vector<EmbeddingBagConfig> tables = {
      {.name = "film", .num_embeddings = 10, .embedding_dim = 4, .feature_names = {"film"}}};
  const auto plan = construct_module_sharding_plan(runtime, tables, {{"film", how}},
                                                   Topology::of(group->world_size(), group->local_world_size(), "cpu"));
  return EmbeddingBagCollectionSharder(runtime, {.optimizer = {"exact_sgd", "{}", 0}}).shard(tables, plan, group);
}

// Two bags, each with an id in the first half of the rows and one in the second.
KeyedJaggedTensor batch() {
  return KeyedJaggedTensor::from_lengths_sync({"film"}, Tensor::from<int64_t>({0, 5, 1, 6}),
                                              Tensor::from<int32_t>({2, 2}));
}

// The exception of `body`, and whether it took until the deadline.
std::string outcome(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  const std::string text = test::refusal([&] { body(); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return text + (took.count() < kTimeout_s / 2 ? "; soon" : "; late");
}

// Rank 0 hears of it in the step, or, if rank 1 was faster, while it takes its own batch in.
TEST(Damaged, ARankInTheStepHearsOfOneThatCouldNotTakeItsBatchIn) {
  const auto texts = cli::run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = connect(runtime, where, "rank=1&label=step header&exchange=1");
    auto sharded = shard(runtime, group, row_wise());
    ShardedInputs inputs(sharded);
    StepHandle place = inputs.reserve();
    inputs.take(place, batch());
    sharded.forward(place, /*keep_for_backward=*/false).wait();
    place = inputs.reserve();
    std::string taken = outcome([&] { inputs.take(place, batch()); });
    if (where.rank == 1 || taken != "no error; soon") return taken;
    return outcome([&] { sharded.forward(place).wait(); });
  });
  EXPECT_THAT(texts[0], AllOf(HasSubstr("rank 1"), HasSubstr("rank 0 sent a damaged step header"), EndsWith("; soon")));
  EXPECT_EQ(texts[1], "rank 0 sent a damaged step header; soon");
}

// Rank 2 is home on the other host. Rank 0 sums rows of its host for it, and is told for which bags. The damaged word
// comes after the 16 words of ranks 0 and 1, and after 4 words of ids, 1 of bags, 2 of lengths and 1 of bags of rank 2.
TEST(Damaged, NotesOfWhichBagsHaveIdsMustFitTheIds) {
  const auto texts = cli::run_in_ranks(4, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = connect(runtime, where, "rank=0&label=ids&word=24");
    auto sharded = shard(runtime, group, table_row_wise(0, Topology::of(4, 2, "cpu")));
    return outcome([&] { sharded.forward(batch()).wait(); });
  });
  EXPECT_EQ(texts[0], "rank 2 sent damaged notes of which bags have ids; soon");
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    EXPECT_THAT(texts[rank], AllOf(HasSubstr("rank 0"), HasSubstr("rank 2 sent damaged notes"), EndsWith("; soon")));
  }
}

// abi/collective.h: a wrapper that is named without an inner transport is given one, and is not made before.
TEST(Wrappers, NamedAloneGetTheBestTransport) {
  const auto backends = cli::run_in_ranks(2, 2, 60, [](const RankEnvironment& where) -> std::string {
    const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}});
    const auto group = ProcessGroup::connect(runtime, where, {.backend = "test.damaging?rank=7"});
    group->barrier();
    return group->backend();
  });
  for (const std::string& backend : backends) EXPECT_EQ(backend, "test.damaging(tcp)");
}

TEST(Wrappers, NamedAloneWithNothingToWrapAreRefused) {
  const Runtime runtime({.plugin_path = {TESSERA_TEST_PLUGINS}, .default_path = false});
  RankEnvironment where{.world_size = 2};
  EXPECT_EQ(
      outcome([&] { ProcessGroup::connect(runtime, where, {.backend = "test.damaging"}); }),
      "tessera.collective/1 \"test.damaging\" wraps another component of its kind, but no other can be used here: "
      "see tessera plugins; soon");
}

}  // namespace
}  // namespace tessera::test::damaged_test
