// Plan files: an accepted plan can be printed, written, and wired up for tables of its sizes.
#include <algorithm>

#include "fuzz.h"
#include "tessera/sharding.h"
#include "wiring/wiring.h"

namespace tessera::fuzz {
namespace {

constexpr int kMostRanks = 64;

void wire_up(const ShardingPlan& plan, const EmbeddingModuleShardingPlan& module) {
  std::vector<EmbeddingBagConfig> tables;
  for (const auto& [name, sharding] : module.tables()) {
    EmbeddingBagConfig table{.name = name, .feature_names = {name}};
    for (const ShardMetadata& s : sharding.shards) {
      table.num_embeddings = std::max(table.num_embeddings, s.row + s.rows);
      table.embedding_dim = std::max(table.embedding_dim, s.col + s.cols);
    }
    tables.push_back(table);
  }
  const Wiring wiring(tables, module, {plan.world_size / plan.local_world_size, plan.local_world_size});
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const RankWiring own(wiring, rank);
    require(own.num_id_routes >= 0 && own.num_row_routes >= own.num_id_routes,
            "each id route of a rank has row routes there");
  }
}

}  // namespace

void fuzz_plan(Input input) {
  taken([&] {
    const ShardingPlan plan = ShardingPlan::from_json(std::string(text_of(input)));
    require(ShardingPlan::from_json(plan.json()) == plan, "a plan that is written is read as it was");
    if (plan.world_size > kMostRanks) return;
    require(!plan.str().empty() && !plan.placement(plan.world_size - 1).empty(), "a plan can be printed");
    for (const auto& [path, module] : plan.modules) {
      (void)plan.tutorial(path);
      taken([&, &tables = module] { wire_up(plan, tables); });
    }
  });
}

}  // namespace tessera::fuzz
