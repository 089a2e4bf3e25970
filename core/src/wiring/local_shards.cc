#include "wiring/local_shards.h"

#include <algorithm>

#include "modules/kernel_config.h"
#include "modules/table_groups.h"

namespace tessera {
namespace {

// Calls the sharder once for each run of consecutive rows.
auto unrouting(RowRouterPtr router, size_t shard) {
  return [router = std::move(router), shard](std::span<const int64_t> rows, int64_t* table_rows) {
    for (size_t i = 0, n = 0; i < rows.size(); i += n) {
      for (n = 1; i + n < rows.size() && rows[i + n] == rows[i] + static_cast<int64_t>(n);) ++n;
      const auto ids = router->unroute(static_cast<int>(shard), rows[i], static_cast<int64_t>(n));
      std::copy(ids.begin(), ids.end(), table_rows + i);
    }
  };
}

}  // namespace

LocalShards local_shards(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                         int rank, bool replicated, const ShardGroupOptions& options) {
  LocalShards out;
  std::vector<LookupOptions> wanted;
  for (size_t t = 0; t < tables.size(); ++t) {
    const EmbeddingBagConfig& table = tables[t];
    const ParameterSharding& sharding = plan.at(table.name);
    for (size_t s = 0; s < sharding.shards.size(); ++s) {
      const ShardMetadata& where = sharding.shards[s];
      if (where.rank != rank || sharding.is_replicated(s) != replicated)
        continue;  // a shard without rows stays in the list, with weights and states of no rows
      LookupOptions& o = wanted.emplace_back();
      o.kernel = options.kernel;
      const ComputeKernelName kernel = compute_kernel_name(sharding.compute_kernel);
      // Gradients of replicated rows are reduced before they are applied, so they need the kernel `dense`, whatever
      // kernel has the table's other rows.
      o.compute_kernel = where.replicated && !table.row_format ? TSR_COMPUTE_DENSE : kernel.name;
      o.stream = options.stream;
      o.weight_dtype = table.data_type;
      o.row_format = table.row_format;
      o.train = !table.row_format;
      o.seed = options.seed;
      if (o.train) o.optimizer = table.optimizer.name.empty() ? options.optimizer : table.optimizer;
      StartValues start;
      if (o.train) start.formula = start_formula(table, options.seed, where.row, where.col);
      const RowRouterPtr router = t < options.routers.size() ? options.routers[t] : nullptr;
      const bool keyed = router && router->keeps_ids();
      if (keyed)
        start.formula.first_row = 0;
      else if (router)
        start.unroute = unrouting(router, s);
      const uint32_t poolings = shard_poolings(options.sequence ? PoolingType::kNone : table.pooling);
      o.tables = {{table.name, keyed ? table.num_embeddings : where.rows, where.cols, kernel.options, poolings,
                   std::move(start), table.any_id}};
      out.shards.push_back({static_cast<int>(t), static_cast<int>(s), where, 0, 0});
    }
  }
  TableGroups grouped = group_tables(std::move(wanted));
  for (size_t k = 0; k < out.shards.size(); ++k) {
    out.shards[k].group = static_cast<int>(grouped.places[k].group);
    out.shards[k].index = grouped.places[k].index;
  }
  out.groups = std::move(grouped.groups);
  return out;
}

}  // namespace tessera
