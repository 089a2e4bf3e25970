// tessera/quant_sharding.h - spreads quantized tables over ranks with the plans, sharders and transports of training.
//
//   auto plan = construct_module_sharding_plan(runtime, configs_of(tables), quant_requests, topology);
//   auto sharded = QuantEmbeddingBagCollectionSharder(runtime, {}).shard(tables, plan, group);
//   KeyedTensor out = sharded.forward(batch, false, false).wait().values;
//
// The result is a sharded collection without backward, in float32. Its plan has the compute kernel "quant" for every
// table. Whole tables and blocks of rows are read in place, so a rank that has mapped a file touches only its own
// shards. A column shard is a copy: its codes, with scale and bias of the whole rows.
#pragma once

#include <memory>
#include <vector>

#include "tessera/quantized_table.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// Ignores optimizer, seed and gradient scales of ShardedModuleOptions. shard() is collective, like the float sharders'.
class QuantEmbeddingBagCollectionSharder {
 public:
  QuantEmbeddingBagCollectionSharder(const Runtime& runtime, ShardedModuleOptions options)
      : runtime_(runtime), options_(std::move(options)) {}
  // Every rank passes all tables. kInvalidArgument: a column split is inside a byte.
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

// The stored rows of one shard, in the form that QuantEmbeddingBagCollectionSharder gives to the rank.
Tensor shard_rows(const QuantizedTable& table, const ShardMetadata& shard);

}  // namespace tessera
