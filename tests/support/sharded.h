// For tests of sharded tables: plans, batches, and what differs between two outputs.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tessera/jagged_tensor.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"

namespace tessera::test {

inline Topology topology_of(const RankEnvironment& where) {
  return Topology::of(where.world_size, where.local_world_size, "cpu");
}

// Table t has the type types[t % size]. Without types, a table's name is its type.
inline EmbeddingModuleShardingPlan plan_of(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                           const Topology& topology, const std::vector<std::string>& types = {},
                                           ShardingRequest request = {.min_partition = 4}) {
  EmbeddingModuleShardingPlan plan;
  for (size_t t = 0; t < tables.size(); ++t) {
    request.sharding_type = types.empty() ? tables[t].name : types[t % types.size()];
    plan.add(tables[t].name, make_sharding(runtime, tables[t], request, topology));
  }
  return plan;
}

// Bag b of feature f has length(f, b) ids, of which the i-th is id(f, b, i). They are asked for in order.
template <class Length, class Id>
KeyedJaggedTensor bags_of(const std::vector<EmbeddingBagConfig>& tables, int64_t bags, const Length& length, Id id) {
  std::vector<std::string> keys;
  std::vector<int64_t> ids;
  std::vector<int32_t> lengths;
  for (const EmbeddingBagConfig& table : tables) {
    for (const std::string& feature : table.feature_names) {
      const int64_t f = std::ssize(keys);
      keys.push_back(feature);
      for (int64_t b = 0; b < bags; ++b) {
        lengths.push_back(static_cast<int32_t>(length(f, b)));
        for (int64_t i = 0; i < lengths.back(); ++i) ids.push_back(id(f, b, i));
      }
    }
  }
  return KeyedJaggedTensor::from_lengths_sync(std::move(keys), Tensor::from(ids), Tensor::from(lengths));
}

// Says which element of `got` is farther than most + share * |value| from that of `want`; "": none is.
inline std::string difference(const std::string& what, const Tensor& got, const Tensor& want, double most = 1e-6,
                              double share = 0) {
  if (got.shape() != want.shape()) return what + " has another shape\n";
  for (int64_t i = 0; i < got.numel(); ++i) {
    if (!(std::abs(got.item(i) - want.item(i)) <= most + share * std::abs(want.item(i))))
      return str_cat(what, " [", i, "] is ", got.item(i), ", not ", want.item(i), "\n");
  }
  return {};
}

// Compares this rank's rows with those of the whole tables; up to most + share * |value| is equal.
template <class Whole>
std::string compare_weights(const ShardedEmbeddings& sharded, const Whole& whole, double most, double share = 0) {
  for (const HeldShard& held : sharded.held_shards()) {
    const Tensor mine = sharded.weight(held), all = whole.weight(held.table);
    const auto rows = sharded.table_rows(held, 0, held.where.rows);
    for (int64_t i = 0; i < held.where.rows * held.where.cols; ++i) {
      const int64_t row = rows[static_cast<size_t>(i / held.where.cols)];
      const double got = mine.item(i), want = all.item(row * all.size(1) + held.where.col + i % held.where.cols);
      if (!(std::abs(got - want) <= most + share * std::abs(want)))
        return str_cat("table ", held.table, " row ", row, " has ", got, ", not ", want, "\n");
    }
  }
  return {};
}

}  // namespace tessera::test
