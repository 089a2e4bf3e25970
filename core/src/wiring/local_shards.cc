#include "wiring/local_shards.h"

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "modules/table_groups.h"

namespace tessera {

LocalShards local_shards(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                         int rank, bool replicas, const ShardGroupOptions& options) {
  LocalShards out;
  std::vector<LookupOptions> wanted;
  // plan.at() looks at one table after the other; a model of all ranks' shards asks for thousands on hundreds of ranks.
  std::unordered_map<std::string_view, const ParameterSharding*> shardings;
  for (const auto& [name, sharding] : plan.tables()) shardings.emplace(name, &sharding);
  for (size_t t = 0; t < tables.size(); ++t) {
    const EmbeddingBagConfig& table = tables[t];
    const auto found = shardings.find(table.name);
    const ParameterSharding& sharding = found == shardings.end() ? plan.at(table.name) : *found->second;
    if ((sharding.combine == ParameterSharding::Combine::kReplica) != replicas) continue;
    for (size_t s = 0; s < sharding.shards.size(); ++s) {
      const ShardMetadata& where = sharding.shards[s];
      if (where.rank != rank) continue;  // one without rows is held, too: it has weights and states of no rows
      LookupOptions& o = wanted.emplace_back();
      o.kernel = options.kernel;
      o.compute_kernel = sharding.compute_kernel;
      o.stream = options.stream;
      o.weight_dtype = table.data_type;
      o.row_format = table.row_format;
      o.train = !table.row_format;
      o.seed = options.seed;
      if (o.train) o.optimizer = table.optimizer.name.empty() ? options.optimizer : table.optimizer;
      const double range = table.init_range.value_or(1 / std::sqrt(static_cast<double>(table.num_embeddings)));
      o.tables = {{table.name, where.rows, where.cols, range, table.kernel_options}};
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
