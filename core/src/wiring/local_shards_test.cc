#include "wiring/local_shards.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

TEST(LocalShards, AreThoseOfARankGroupedByWhatTheyHaveInCommon) {
  std::vector<EmbeddingBagConfig> tables(3);
  EmbeddingModuleShardingPlan plan;
  for (size_t t = 0; t < tables.size(); ++t) {
    tables[t].name = str_cat("t", t);
    tables[t].num_embeddings = 8;
    tables[t].embedding_dim = 4;
  }
  tables[1].optimizer = {"adam", "{}", 0};
  plan.add("t0", {"test", "fused", Combine::kSum, false, {{4, 4, 0, 0, 0}, {4, 4, 4, 0, 1}, {0, 4, 8, 0, 1}}});
  plan.add("t1", {"test", "fused", Combine::kConcat, false, {{8, 2, 0, 0, 1}, {8, 2, 0, 2, 1}}});
  plan.add("t2", {"test", "dense", Combine::kDataParallel, false, {{8, 4, 0, 0, 0}, {8, 4, 0, 0, 1}}});
  const auto text = [&](int rank, bool replicated) {
    std::string out;
    const LocalShards local = local_shards(tables, plan, rank, replicated, {.optimizer = {"exact_sgd", "{}", 0}});
    for (const LocalShard& s : local.shards) {
      const LookupOptions& group = local.groups[static_cast<size_t>(s.group)];
      out += str_cat(tables[static_cast<size_t>(s.table)].name, '/', s.shard, ' ', group.optimizer.name, ' ',
                     group.tables[static_cast<size_t>(s.index)].rows, 'x',
                     group.tables[static_cast<size_t>(s.index)].dim, "; ");
    }
    return str_cat(out, local.groups.size(), " groups");
  };
  EXPECT_EQ(text(0, false), "t0/0 exact_sgd 4x4; 1 groups");
  EXPECT_EQ(text(1, false), "t0/1 exact_sgd 4x4; t0/2 exact_sgd 0x4; t1/0 adam 8x2; t1/1 adam 8x2; 2 groups");
  EXPECT_EQ(text(1, true), "t2/1 exact_sgd 8x4; 1 groups");
}

}  // namespace
}  // namespace tessera
