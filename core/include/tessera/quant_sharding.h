// tessera/quant_sharding.h - quantized tables over ranks, by the same plans, sharders and transports as in training.
//
//   auto plan = construct_module_sharding_plan(runtime, configs_of(tables), quant_requests, topology);
//   auto sharded = QuantEmbeddingBagCollectionSharder(runtime, {}).shard(tables, plan, group);
//   KeyedTensor out = sharded.forward(batch, false, false).wait().values;
//
// The result is a sharded collection without backward, in float32; its plan says the compute kernel "quant" for every
// table. Whole tables and blocks of rows are read where they lie, so a rank that has mapped a file touches its own
// shards alone; a column shard is a copy of its codes behind the scale and bias of their whole rows.
#pragma once

#include <memory>
#include <vector>

#include "tessera/quantized_table.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// ShardedModuleOptions: optimizer, seed and gradient scales are not used. Collective, as shard() of the float sharders.
class QuantEmbeddingBagCollectionSharder {
 public:
  QuantEmbeddingBagCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  // Every rank gives all tables. kInvalidArgument: a column split inside a byte.
  ShardedEmbeddingBagCollection shard(const std::vector<QuantizedTable>& tables,
                                      const EmbeddingModuleShardingPlan& plan,
                                      std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

class QuantEmbeddingCollectionSharder {
 public:
  QuantEmbeddingCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  ShardedEmbeddingCollection shard(const std::vector<QuantizedTable>& tables, const EmbeddingModuleShardingPlan& plan,
                                   std::shared_ptr<ProcessGroup> group) const;

 private:
  const Runtime& runtime_;
  ShardedModuleOptions options_;
};

// The stored rows of one shard of a table, as QuantEmbeddingBagCollectionSharder gives them to the rank.
Tensor shard_rows(const QuantizedTable& table, const ShardMetadata& shard);

}  // namespace tessera
