#include "wiring/row_router.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>

#include "config/fnv1a.h"
#include "modules/kernel_config.h"
#include "plugin/interfaces.h"
#include "tessera/calls.h"
#include "tessera/sdk/random.h"
#include "tessera/sdk/tensor.h"

namespace tessera {

namespace {

template <class T>
DLTensor vector_of(T* data, const int64_t& size) {
  return {const_cast<std::remove_const_t<T>*>(data),
          {kDLCPU, 0},
          1,
          sdk::dtype_of<T>(),
          const_cast<int64_t*>(&size),
          nullptr,
          0};
}

}  // namespace

RowSets::RowSets(const ParameterSharding& sharding) {
  std::map<std::pair<int64_t, int64_t>, int> seen;  // by columns
  int replicated = -1;
  for (const ShardMetadata& s : sharding.shards) {
    int set = replicated;
    if (!s.replicated)
      set = seen[{s.col, s.cols}]++;
    else if (replicated < 0)
      set = replicated = static_cast<int>(rows.size());
    if (!s.replicated && replicated >= 0 && set >= replicated) ++set;
    if (set == std::ssize(rows)) rows.push_back(s.rows);
    of_shard.push_back(set);
  }
}

RowRouter::RowRouter(ComponentPtr sharder, const EmbeddingBagConfig& table, const ParameterSharding& sharding,
                     const World& world)
    : sharder_(std::move(sharder)),
      config_(table),
      row_sets_(sharding),
      cookie_(sharding.cookie),
      keeps_ids_((sharder_->api<tsr_sharder>().flags & TSR_SHARDER_KEEPS_IDS) != 0) {
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
  topology_ = {sizeof(topology_),
               0,
               static_cast<uint32_t>(world.ranks),
               static_cast<uint32_t>(world.local_ranks),
               world.device_type,
               0,
               nullptr};
}

tsr_route RowRouter::rows_of(std::span<const DLTensor, 3> tensors) const {
  return {sizeof(tsr_route),
          0,
          static_cast<uint32_t>(row_sets_.rows.size()),
          0,
          &table_,
          &topology_,
          cookie_,
          &tensors[0],
          &tensors[1],
          &tensors[2],
          nullptr};
}

void RowRouter::route(std::span<const int64_t> ids, int32_t* row_sets, int64_t* rows) const {
  std::fill_n(row_sets, ids.size(), -1);  // an id that the sharder skips then has no row
  std::fill_n(rows, ids.size(), -1);
  const auto n = static_cast<int64_t>(ids.size());
  const DLTensor tensors[] = {vector_of(ids.data(), n), vector_of(row_sets, n), vector_of(rows, n)};
  const tsr_route call_for = rows_of(tensors);
  AbiError err;
  const plugin::CallScope call(*sharder_, "route", config_.name);
  const tsr_code code = sharder_->api<tsr_sharder>().route(sharder_->self(), &call_for, err.out());
  // A step calls this, so text is only made for an error.
  if (code != TSR_OK) err.check(code, str_cat(who(), ": route"));
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto k = static_cast<size_t>(row_sets[i]);
    if (k < row_sets_.rows.size() && keeps_ids_ && rows[i] != ids[i]) {
      fail(Code::kInternal, who(), ": route takes id ", ids[i], " to row ", rows[i],
           ", but says that rows keep their ids: it must write the id");
    }
    if (k >= row_sets_.rows.size() || rows[i] < 0 || (rows[i] >= row_sets_.rows[k] && !keeps_ids_)) {
      fail(Code::kInternal, who(), ": route takes id ", ids[i], " to row ", rows[i], " of row set ", row_sets[i],
           ", which does not exist: it must write a row set and a row of it for every id");
    }
  }
}

std::vector<int64_t> RowRouter::unroute(int shard, int64_t first, int64_t count) const {
  const int32_t row_set = this->row_set(shard);
  std::vector<int64_t> rows(count), ids(count, -1);
  std::vector<int32_t> row_sets(count, row_set);
  std::iota(rows.begin(), rows.end(), first);
  const DLTensor tensors[] = {vector_of(ids.data(), count), vector_of(row_sets.data(), count),
                              vector_of(rows.data(), count)};
  const tsr_route call_for = rows_of(tensors);
  AbiError err;
  {
    const plugin::CallScope call(*sharder_, "unroute", config_.name);
    err.check(sharder_->api<tsr_sharder>().unroute(sharder_->self(), &call_for, err.out()),
              str_cat(who(), ": unroute"));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < config_.id_bound()) continue;
    fail(Code::kInternal, who(), ": unroute takes row ", rows[i], " of row set ", row_set, " to id ", ids[i],
         ", but the table has ", config_.num_embeddings, " rows: it must write one of their ids for every row");
  }
  std::vector<int64_t> back(count);
  route(ids, row_sets.data(), back.data());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (row_sets[i] == row_set && back[i] == rows[i]) continue;
    fail(Code::kInternal, who(), ": unroute takes row ", rows[i], " of row set ", row_set, " to id ", ids[i],
         ", but route takes that id to row ", back[i], " of row set ", row_sets[i],
         ": each must be the inverse of the other");
  }
  return ids;
}

std::string RowRouter::who() const { return str_cat("sharder ", sharder_->id(), ", table \"", config_.name, '"'); }

// Takes one id of each stretch of the table. Distances vary, because a sharder may deal out rows by their number.
RowRouter::Sample RowRouter::sample() const {
  const int64_t count = std::min(config_.num_embeddings, kSampled), stretch = config_.num_embeddings / count;
  Sample out;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t drawn = (static_cast<uint64_t>(i) + 1) * sdk::kGoldenStep >> 20;
    out.ids.push_back(i * stretch + static_cast<int64_t>(drawn % static_cast<uint64_t>(stretch)));
  }
  out.row_sets.resize(out.ids.size());
  out.rows.resize(out.ids.size());
  route(out.ids, out.row_sets.data(), out.rows.data());
  return out;
}

uint64_t RowRouter::fingerprint() const {
  const Sample s = sample();
  const auto bytes = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  return fnv1a(bytes(s.rows), fnv1a(bytes(s.row_sets)));
}

namespace {

// True if a usable kernel serves this compute kernel and makes rows on demand.
bool makes_rows_on_demand(const Runtime& runtime, const std::string& kernel, const std::string& compute_kernel) {
  try {
    const ComponentPtr part = runtime.create(TSR_KERNEL_KIND, kernel);
    const tsr_kernel& api = part->api<tsr_kernel>();
    return (api.flags & TSR_KERNEL_ROWS_ON_DEMAND) != 0 && plugin::serves(api, compute_kernel);
  } catch (const Error&) {  // not usable here; the load report says why
  }
  return false;
}

// Refuses kernels that do not make rows on demand: they would hold all rows of the table on every rank.
void check_on_demand(const Runtime& runtime, const RowRouter& router, const std::string& compute_kernel) {
  const std::string name = compute_kernel_name(compute_kernel).name;
  for (const std::string& id : runtime.ids(TSR_KERNEL_KIND)) {
    if (makes_rows_on_demand(runtime, id, name)) return;
  }
  fail(Code::kUnimplemented, router.who(),
       ": it keeps the ids of rows, which needs a kernel with rows on demand, and \"", name,
       "\" is not one: choose another kernel or another sharding");
}

}  // namespace

std::vector<RowRouterPtr> row_routers(const Runtime& runtime, const std::vector<EmbeddingBagConfig>& tables,
                                      const EmbeddingModuleShardingPlan& plan, const RowRouter::World& world) {
  std::vector<RowRouterPtr> out(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) {
    const ParameterSharding& sharding = plan.at(tables[t].name);
    if (!sharding.routed) continue;
    out[t] = std::make_shared<RowRouter>(runtime.create(TSR_SHARDER_KIND, sharding.sharding_type), tables[t], sharding,
                                         world);
    if (out[t]->keeps_ids()) check_on_demand(runtime, *out[t], sharding.compute_kernel);
  }
  return out;
}

}  // namespace tessera
