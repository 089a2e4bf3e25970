#include "wiring/row_router.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "config/fnv1a.h"
#include "plugin/calls.h"

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
  std::fill_n(shards, ids.size(), -1);  // what it does not write is no row
  std::fill_n(rows, ids.size(), -1);
  AbiError err;
  const plugin::CallScope call(*sharder_, "route", config_.name);
  const tsr_code code =
      sharder_->api<tsr_sharder>().route(sharder_->self(), &table_, static_cast<uint32_t>(shard_rows_.size()),
                                         static_cast<int64_t>(ids.size()), ids.data(), shards, rows, err.out());
  if (code != TSR_OK) err.check(code, cat(who(), ": route"));  // steps come here: no text where nothing is wrong
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto k = static_cast<size_t>(shards[i]);
    if (k >= shard_rows_.size() || rows[i] < 0 || rows[i] >= shard_rows_[k]) {
      fail(Code::kInternal, who(), ": route takes id ", ids[i], " to row ", rows[i], " of shard ", shards[i],
           ", which does not exist: it must write a shard and a row of it for every id");
    }
  }
}

std::vector<int64_t> RowRouter::unroute(int shard, int64_t first, int64_t count) const {
  std::vector<int64_t> rows(count), ids(count, -1);
  std::iota(rows.begin(), rows.end(), first);
  AbiError err;
  {
    const plugin::CallScope call(*sharder_, "unroute", config_.name);
    err.check(
        sharder_->api<tsr_sharder>().unroute(sharder_->self(), &table_, static_cast<uint32_t>(shard_rows_.size()),
                                             static_cast<uint32_t>(shard), count, rows.data(), ids.data(), err.out()),
        cat(who(), ": unroute"));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config_.num_embeddings) continue;
    fail(Code::kInternal, who(), ": unroute takes row ", rows[i], " of shard ", shard, " to id ", ids[i],
         ", but the table has ", config_.num_embeddings, " rows: it must write one of their ids for every row");
  }
  std::vector<int32_t> shards(count);
  std::vector<int64_t> back(count);
  route(ids, shards.data(), back.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (shards[i] == shard && back[i] == rows[i]) continue;
    fail(Code::kInternal, who(), ": unroute takes row ", rows[i], " of shard ", shard, " to id ", ids[i],
         ", but route takes that id to row ", back[i], " of shard ", shards[i],
         ": each must be the inverse of the other");
  }
  return ids;
}

std::string RowRouter::who() const { return cat("sharder ", sharder_->id(), ", table \"", config_.name, '"'); }

// One of each piece of the table, not at equal distances: a sharder may deal rows out by their number.
RowRouter::Sample RowRouter::sample() const {
  const int64_t count = std::min(config_.num_embeddings, kSampled), piece = config_.num_embeddings / count;
  Sample out;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t mixed = (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15u >> 20;
    out.ids.push_back(i * piece + static_cast<int64_t>(mixed % static_cast<uint64_t>(piece)));
  }
  out.shards.resize(out.ids.size());
  out.rows.resize(out.ids.size());
  route(out.ids, out.shards.data(), out.rows.data());
  return out;
}

uint64_t RowRouter::fingerprint() const {
  const Sample s = sample();
  const auto bytes = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  return fnv1a(bytes(s.rows), fnv1a(bytes(s.shards)));
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
