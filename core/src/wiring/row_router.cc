#include "wiring/row_router.h"

#include <numeric>

namespace tessera {

RowRouter::RowRouter(PartPtr sharder, const EmbeddingBagConfig& table, std::vector<int64_t> shard_rows)
    : sharder_(std::move(sharder)), config_(table), shard_rows_(std::move(shard_rows)) {
  const auto& api = sharder_->api<tsr_sharder>();
  if (!TSR_HAS(tsr_sharder, &api, route) || !TSR_HAS(tsr_sharder, &api, unroute)) {
    fail(Code::kFailedPrecondition, "sharder ", sharder_->id(), " routes rows of table \"", table.name,
         "\" but has no route() and unroute()");
  }
  for (const std::string& f : config_.feature_names) features_.push_back(f.c_str());
  table_.struct_size = sizeof(table_);
  table_.pooling = static_cast<int32_t>(config_.pooling);
  table_.name = config_.name.c_str();
  table_.rows = config_.num_embeddings;
  table_.cols = config_.embedding_dim;
  table_.dtype = to_dl(config_.data_type);
  table_.num_features = static_cast<uint32_t>(features_.size());
  table_.features = features_.data();
}

void RowRouter::route(std::span<const int64_t> ids, int32_t* shards, int64_t* rows) const {
  AbiError err;
  err.check(sharder_->api<tsr_sharder>().route(sharder_->self(), &table_, static_cast<uint32_t>(shard_rows_.size()),
                                               static_cast<int64_t>(ids.size()), ids.data(), shards, rows, err.out()),
            cat("sharder ", sharder_->id(), ": route"));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto k = static_cast<size_t>(shards[i]);
    if (k >= shard_rows_.size() || rows[i] < 0 || rows[i] >= shard_rows_[k]) {
      fail(Code::kInternal, "sharder ", sharder_->id(), " routed id ", ids[i], " to row ", rows[i], " of shard ",
           shards[i], ", which does not exist");
    }
  }
}

std::vector<int64_t> RowRouter::unroute(int shard, int64_t first, int64_t count) const {
  std::vector<int64_t> rows(count), ids(count);
  std::iota(rows.begin(), rows.end(), first);
  AbiError err;
  err.check(
      sharder_->api<tsr_sharder>().unroute(sharder_->self(), &table_, static_cast<uint32_t>(shard_rows_.size()),
                                           static_cast<uint32_t>(shard), count, rows.data(), ids.data(), err.out()),
      cat("sharder ", sharder_->id(), ": unroute"));
  for (int64_t id : ids) {
    if (id < 0 || id >= config_.num_embeddings) {
      fail(Code::kInternal, "sharder ", sharder_->id(), " says that shard ", shard, " holds id ", id, " of table \"",
           config_.name, "\", which has ", config_.num_embeddings, " rows");
    }
  }
  return ids;
}

std::vector<RowRouterPtr> row_routers(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                      const EmbeddingModuleShardingPlan& plan) {
  std::vector<RowRouterPtr> out(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const ParameterSharding& sharding = plan.at(tables[t].name);
    if (!sharding.routed) continue;
    std::vector<int64_t> rows;
    for (const ShardMetadata& shard : sharding.shards) rows.push_back(shard.rows);
    out[t] = std::make_shared<RowRouter>(runtime.create(TSR_SHARDER_KIND, sharding.sharding_type), tables[t], rows);
  }
  return out;
}

}  // namespace tessera
