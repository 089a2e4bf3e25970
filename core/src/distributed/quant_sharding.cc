#include "tessera/quantization.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

// Copies the rows of a shard that a sharder routes, one by one.
Tensor routed_rows(const QuantizedTable& table, const ShardMetadata& where, const std::vector<int64_t>& ids) {
  const Tensor all = shard_rows(table, {table.config.num_embeddings, where.cols, 0, where.col, where.rank});
  const int64_t bytes = all.size(1);
  Tensor out = Tensor::empty({where.rows, bytes}, DType::kUInt8);
  for (int64_t i = 0; i < where.rows; ++i) {
    std::copy_n(static_cast<const uint8_t*>(all.raw()) + ids[static_cast<size_t>(i)] * bytes, bytes,
                out.data<uint8_t>() + i * bytes);
  }
  return out;
}

void require_infer_plan(const std::vector<QuantizedTable>& tables, const EmbeddingModuleShardingPlan& plan) {
  for (const QuantizedTable& t : tables) {
    const ParameterSharding& sharding = plan.at(t.config.name);
    for (const ShardMetadata& s : sharding.shards) {
      if (s.col * sdk::info_of(*t.config.row_format).bits % 8 == 0) continue;
      fail(Code::kInvalidArgument, "table \"", t.config.name, "\": a shard begins at column ", s.col,
           ", inside a byte of ", sdk::to_string(*t.config.row_format), ": choose another min_partition");
    }
  }
}

template <class Module>
Module with_rows(Module module, const std::vector<QuantizedTable>& tables) {
  for (const HeldShard& held : module.held_shards()) {
    const auto table = std::find_if(tables.begin(), tables.end(),
                                    [&](const QuantizedTable& t) { return t.config.name == held.table; });
    const bool routed = module.plan().at(held.table).routed;
    module.adopt_rows(held, routed ? routed_rows(*table, held.where, module.table_rows(held, 0, held.where.rows))
                                   : shard_rows(*table, held.where));
  }
  return module;
}

}  // namespace

Tensor shard_rows(const QuantizedTable& table, const ShardMetadata& shard) {
  return slice_rows(table, {shard.row, shard.rows, shard.col, shard.cols});
}

ShardedEmbeddingBagCollection QuantEmbeddingBagCollectionSharder::shard(const std::vector<QuantizedTable>& tables,
                                                                        const EmbeddingModuleShardingPlan& plan,
                                                                        std::shared_ptr<ProcessGroup> group) const {
  const std::vector<QuantizedTable> checked = validated(tables);
  require_infer_plan(checked, plan);
  const EmbeddingBagCollectionSharder sharder(runtime_, options_);
  return with_rows(sharder.shard(configs_of(checked), plan, std::move(group)), checked);
}

ShardedEmbeddingCollection QuantEmbeddingCollectionSharder::shard(const std::vector<QuantizedTable>& tables,
                                                                  const EmbeddingModuleShardingPlan& plan,
                                                                  std::shared_ptr<ProcessGroup> group) const {
  const std::vector<QuantizedTable> checked = validated(tables);
  require_infer_plan(checked, plan);
  const EmbeddingCollectionSharder sharder(runtime_, options_);
  return with_rows(sharder.shard(configs_of(checked), plan, std::move(group)), checked);
}

}  // namespace tessera
