#include "wiring/wiring.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "wiring/tiling.h"

namespace tessera {
namespace {

using Combine = ParameterSharding::Combine;

// Groups shards by column block, and sorts each block's shards by row. The first replicated shard is in every block.
// Shards without rows count only if route() numbers them.
std::map<std::pair<int64_t, int64_t>, std::vector<int>> column_blocks(const ParameterSharding& sharding) {
  std::map<std::pair<int64_t, int64_t>, std::vector<int>> blocks;
  std::vector<size_t> counted;
  for (const size_t s : sharding.distinct()) {
    const ShardMetadata& shard = sharding.shards[s];
    if (shard.rows == 0 && !sharding.routed) continue;
    counted.push_back(s);
    if (!shard.replicated) blocks[{shard.col, shard.cols}];
  }
  for (const size_t s : counted) {
    const ShardMetadata& shard = sharding.shards[s];
    if (!shard.replicated || blocks.empty())
      blocks[{shard.col, shard.cols}].push_back(static_cast<int>(s));
    else  // a replicated shard has all columns
      for (auto& [columns, shards] : blocks) shards.push_back(static_cast<int>(s));
  }
  if (sharding.routed) return blocks;
  for (auto& [columns, shards] : blocks) {
    std::sort(shards.begin(), shards.end(),
              [&](int x, int y) { return sharding.shards[x].row < sharding.shards[y].row; });
  }
  return blocks;
}

int64_t uniform_block(const std::vector<int64_t>& begins) {
  const int64_t block = begins[1] - begins[0];
  for (size_t k = 1; k + 1 < begins.size(); ++k) {
    if (begins[k] != static_cast<int64_t>(k) * block) return 0;
  }
  return begins.back() - begins[begins.size() - 2] <= block ? block : 0;
}

// The result is exact for ids and blocks below 2^32.
uint64_t reciprocal_of(int64_t block, int64_t table_rows) {
  if (block < 2 || table_rows > int64_t{1} << 32) return 0;
  return ~uint64_t{0} / static_cast<uint64_t>(block) + 1;
}

}  // namespace

void check_tiling(const EmbeddingBagConfig& table, const ParameterSharding& sharding, int world_size) {
  const auto refuse = [&](const std::string& why) {
    fail(Code::kInvalidArgument, "the plan of table \"", table.name, "\" (", sharding.sharding_type,
         ") does not fit: ", why);
  };
  if (sharding.shards.empty()) refuse("it has no shards");
  std::vector<int> replicated_on;  // ranks that have the replicated rows
  const ShardMetadata* replicated = nullptr;
  for (size_t i = 0; i < sharding.shards.size(); ++i) {
    const ShardMetadata& s = sharding.shards[i];
    if (s.rank < 0 || s.rank >= world_size) {
      refuse(str_cat("a shard is on rank ", s.rank, ", but there are ", world_size, " ranks"));
    }
    if (!sharding.is_replicated(i)) continue;
    if (replicated == nullptr) replicated = &s;
    replicated_on.push_back(s.rank);
    if (s.rows != replicated->rows || s.row != replicated->row) refuse("its replicated shards hold different rows");
    if (s.col != 0 || s.cols != table.embedding_dim) refuse("a replicated shard does not have all columns");
    if (!s.replicated && s.rows != table.num_embeddings)
      refuse("a shard of a data-parallel table is not the whole table");
  }
  std::vector<int> all(world_size);
  std::iota(all.begin(), all.end(), 0);
  std::sort(replicated_on.begin(), replicated_on.end());
  if (replicated != nullptr && replicated_on != all) refuse("a replicated shard is needed on every rank, once");
  if (sharding.combine == Combine::kDataParallel) return;
  std::vector<tsr_rectangle> rectangles;
  for (const size_t i : sharding.distinct()) {
    const ShardMetadata& s = sharding.shards[i];
    if (table.any_id && !sharding.routed && s.rows != table.num_embeddings)
      refuse("it splits rows by ranges, but the table's ids have no bound");
    rectangles.push_back({s.row, s.rows, s.col, s.cols});
  }
  const auto why_not = sharding.routed ? why_not_tiling_routed : why_not_tiling;
  const std::string reason = why_not(rectangles, table.num_embeddings, table.embedding_dim);
  if (!reason.empty()) refuse(reason);
}

Wiring::Wiring(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan, HostGrid hosts,
               const WiringOptions& options)
    : sequence_(options.sequence), hosts_(hosts) {
  for (const EmbeddingBagConfig& table : tables) check_tiling(table, plan.at(table.name), world_size());
  std::set<std::string_view> names;
  for (const EmbeddingBagConfig& table : tables) names.insert(table.name);
  for (const auto& [name, sharding] : plan.tables()) {
    if (!names.contains(name))
      fail(Code::kInvalidArgument, "the plan has a table \"", name, "\" that the collection lacks");
  }
  add_table_features(tables, plan);
  for (size_t i = 0; i < table_features_.size(); ++i) {
    if (table_features_[i].data_parallel) continue;
    const auto t = static_cast<size_t>(table_features_[i].table);
    add_id_routes(static_cast<int>(i), plan.at(tables[t].name), options.routers.empty() ? nullptr : options.routers[t],
                  tables[t].num_embeddings);
  }
  order_by_rank();
  number_replicated_rows();
  find_single_routes();
  if (!sequence_ && hosts_.ranks > 1 && hosts_.count > 1) find_host_sums(tables, plan);
  if (host_sums_.empty()) hosts_ = {1, world_size()};
  for (int host = 0; host <= hosts_.count; ++host) {
    const auto at =
        std::partition_point(host_sums_.begin(), host_sums_.end(), [&](const HostSum& s) { return s.host < host; });
    host_sum_begin_.push_back(static_cast<int>(at - host_sums_.begin()));
  }
  summed_routes_.resize(hosts_.count);
  for (const RowRoute& row_route : row_routes_) {
    if (row_route.host_sum < 0) continue;
    auto& id_routes = summed_routes_[host_sums_[row_route.host_sum].host];
    if (id_routes.empty() || id_routes.back() != row_route.id_route) id_routes.push_back(row_route.id_route);
  }
  order_arrivals();
}

void Wiring::add_table_features(const std::vector<EmbeddingBagConfig>& tables,
                                const EmbeddingModuleShardingPlan& plan) {
  const auto names = embedding_names_by_table(tables);
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t f = 0; f < tables[t].feature_names.size(); ++f) {
      TableFeature table_feature;
      table_feature.table = static_cast<int>(t);
      table_feature.feature = tables[t].feature_names[f];
      table_feature.name = names[t][f];
      table_feature.pooling = tables[t].pooling;
      table_feature.rows = tables[t].num_embeddings;
      table_feature.any_id = tables[t].any_id;
      table_feature.dim = tables[t].embedding_dim;
      table_feature.col = output_width_;
      table_feature.data_parallel = plan.at(tables[t].name).combine == Combine::kDataParallel;
      output_width_ += table_feature.dim;
      table_features_.push_back(std::move(table_feature));
    }
  }
}

namespace {

// The ranges of a column block: its shards, and the gaps between them if the block does not hold all rows.
struct Ranges {
  std::vector<int64_t> begins;  // one for each range, and the table's rows
  std::vector<int> shard_of;    // -1: a gap
};

Ranges ranges_of(const ParameterSharding& sharding, const std::vector<int>& shards, int64_t table_rows) {
  Ranges out;
  int64_t next = 0;
  const auto add = [&](int shard) {
    out.begins.push_back(next);
    out.shard_of.push_back(shard);
  };
  for (const int i : shards) {
    const ShardMetadata& shard = sharding.shards[i];
    if (!sharding.routed && shard.row > next) {
      add(-1);
      next = shard.row;
    }
    add(i);
    next += shard.rows;
  }
  if (next < table_rows) add(-1);
  out.begins.push_back(table_rows);
  return out;
}

}  // namespace

void Wiring::add_id_routes(int table_feature, const ParameterSharding& sharding, const RowRouterPtr& router,
                           int64_t table_rows) {
  TableFeature& feature = table_features_[table_feature];
  std::map<std::vector<int64_t>, int> row_split_of;      // column blocks with equal ranges share a row split
  std::map<std::tuple<int, int, int>, int> id_route_of;  // (row split, range, rank)
  for (const auto& [columns, shards] : column_blocks(sharding)) {
    const auto [begins, shard_of] = ranges_of(sharding, shards, table_rows);
    const bool all_rows = std::count(shard_of.begin(), shard_of.end(), -1) == 0;
    feature.starts_at_zero = feature.starts_at_zero || !all_rows;
    auto [at, is_new] = row_split_of.try_emplace(begins, static_cast<int>(row_splits_.size()));
    if (is_new) {
      RowSplit split{.table_feature = table_feature, .begins = begins, .block = uniform_block(begins)};
      split.reciprocal = reciprocal_of(split.block, table_rows);
      split.id_routes.resize(shard_of.size());
      split.routed = sharding.routed;
      split.router = router;
      row_splits_.push_back(std::move(split));
    }
    const int c = at->second;
    bool first = true;
    for (size_t range = 0; range < shard_of.size(); ++range) {
      if (shard_of[range] < 0 || sharding.shards[shard_of[range]].rows == 0) continue;
      const ShardMetadata& shard = sharding.shards[shard_of[range]];
      if (shard.replicated) {
        if (feature.replicated_rows < 0) {
          feature.replicated_rows = static_cast<int>(replicated_rows_.size());
          replicated_rows_.push_back({table_feature, shard.rows});
          row_splits_[c].replicated_range = static_cast<int>(range);
        }
        replicated_arrivals_.push_back({static_cast<int>(range),
                                        {table_feature, columns.first, columns.second, std::exchange(first, false), -1,
                                         -1, feature.replicated_rows}});
        continue;
      }
      auto [found, fresh] =
          id_route_of.try_emplace({c, static_cast<int>(range), shard.rank}, static_cast<int>(id_routes_.size()));
      if (fresh) {
        row_splits_[c].id_routes[range].push_back(found->second);
        id_routes_.push_back(
            {table_feature, shard.rank, sharding.routed ? 0 : shard.row, shard.rows, c, static_cast<int>(range)});
      }
      row_routes_.push_back(
          {found->second, feature.table, shard_of[range], shard.col, shard.cols, std::exchange(first, false)});
    }
  }
  if (!feature.starts_at_zero) return;
  for (RowRoute& row_route : row_routes_) {
    if (id_routes_[row_route.id_route].table_feature == table_feature) row_route.first = false;
  }
}

void Wiring::order_by_rank() {
  std::vector<int> order(id_routes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return id_routes_[a].rank < id_routes_[b].rank; });
  std::vector<int> place(id_routes_.size());
  std::vector<IdRoute> id_routes;
  for (int old : order) {
    place[old] = static_cast<int>(id_routes.size());
    id_routes.push_back(id_routes_[old]);
  }
  id_routes_ = std::move(id_routes);
  for (RowRoute& route : row_routes_) route.id_route = place[route.id_route];
  for (RowSplit& split : row_splits_) {
    for (auto& range : split.id_routes) {
      for (int& id_route : range) id_route = place[id_route];
    }
  }
  std::stable_sort(row_routes_.begin(), row_routes_.end(),
                   [](const RowRoute& a, const RowRoute& b) { return a.id_route < b.id_route; });
  for (int rank = 0; rank <= world_size(); ++rank) {
    const auto id_route =
        std::partition_point(id_routes_.begin(), id_routes_.end(), [&](const IdRoute& r) { return r.rank < rank; });
    id_route_begin_.push_back(static_cast<int>(id_route - id_routes_.begin()));
    const auto row_route = std::partition_point(row_routes_.begin(), row_routes_.end(),
                                                [&](const RowRoute& r) { return id_routes_[r.id_route].rank < rank; });
    row_route_begin_.push_back(static_cast<int>(row_route - row_routes_.begin()));
  }
}

// The first row split of a table feature finds the ids of replicated rows; its other row splits send these ids nowhere.
void Wiring::number_replicated_rows() {
  for (RowSplit& split : row_splits_) {
    if (split.replicated_range >= 0)
      split.id_routes[split.replicated_range] = {
          static_cast<int>(replicated_route(table_features_[split.table_feature].replicated_rows))};
  }
}

void Wiring::find_single_routes() {
  for (RowSplit& split : row_splits_) {
    for (size_t range = 0; range < split.id_routes.size(); ++range) {
      const std::vector<int>& id_routes = split.id_routes[range];
      if (id_routes.size() > 1 || (id_routes.empty() && split.begins[range] < split.begins[range + 1])) {
        split.single.clear();
        break;
      }
      split.single.push_back(id_routes.empty() ? -1 : id_routes[0]);
    }
  }
}

// Finds the row routes of one table feature, host and column block. A row route that is alone there needs no sum.
void Wiring::find_host_sums(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan) {
  std::vector<bool> is_summed;  // by table
  for (const EmbeddingBagConfig& t : tables) is_summed.push_back(plan.at(t.name).combine == Combine::kHostSum);
  std::map<std::tuple<int, int, int64_t, int64_t>, std::vector<int>> blocks;
  for (size_t i = 0; i < row_routes_.size(); ++i) {
    const RowRoute& row_route = row_routes_[i];
    if (!is_summed[row_route.table]) continue;
    const IdRoute& id_route = id_routes_[row_route.id_route];
    blocks[{hosts_.of(id_route.rank), id_route.table_feature, row_route.col, row_route.cols}].push_back(
        static_cast<int>(i));
  }
  for (const auto& [key, row_routes] : blocks) {
    if (row_routes.size() < 2) continue;
    HostSum sum{std::get<1>(key), std::get<0>(key), std::get<2>(key), std::get<3>(key), false, row_routes};
    for (int row_route : row_routes) {
      sum.first = sum.first || row_routes_[row_route].first;
      row_routes_[row_route].host_sum = static_cast<int>(host_sums_.size());
    }
    host_sums_.push_back(std::move(sum));
  }
}

// Sorts arrivals by table feature, then columns, then first row: the row routes, and the host sums that replace row
// routes for homes on other hosts.
void Wiring::order_arrivals() {
  std::vector<std::pair<int, Arrival>> found = replicated_arrivals_;  // by range of the row split
  const auto range_of = [&](int row_route) { return id_routes_[row_routes_[row_route].id_route].range; };
  for (size_t i = 0; i < row_routes_.size(); ++i) {
    const RowRoute& row_route = row_routes_[i];
    const auto index = static_cast<int>(i);
    found.push_back(
        {range_of(index),
         {id_routes_[row_route.id_route].table_feature, row_route.col, row_route.cols, row_route.first, index, -1}});
  }
  for (size_t i = 0; i < host_sums_.size(); ++i) {
    const HostSum& sum = host_sums_[i];
    int range = range_of(sum.row_routes.front());
    for (int row_route : sum.row_routes) range = std::min(range, range_of(row_route));
    found.push_back({range, {sum.table_feature, sum.col, sum.cols, sum.first, -1, static_cast<int>(i)}});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& x, const auto& y) {
    return std::tuple(x.second.table_feature, x.second.col, x.first) <
           std::tuple(y.second.table_feature, y.second.col, y.first);
  });
  for (auto& [range, arrival] : found) in_order_.push_back(arrival);
}

std::vector<Arrival> Wiring::arrivals(int rank) const {
  const int own = hosts_.of(rank);
  std::vector<Arrival> out;
  for (const Arrival& a : in_order_) {
    const int sum = a.replicated_rows >= 0 ? -1 : a.row_route >= 0 ? row_routes_[a.row_route].host_sum : a.host_sum;
    const bool of_other_host = sum >= 0 && host_sums_[sum].host != own;
    if (a.replicated_rows >= 0 || (a.row_route >= 0 ? !of_other_host : of_other_host)) out.push_back(a);
  }
  return out;
}

RankWiring::RankWiring(const Wiring& all, int r, const PlacesRows& places_rows)
    : wiring(all),
      rank(r),
      host(all.hosts().of(r)),
      first_id_route(all.id_route_begin(r)),
      num_id_routes(all.id_route_begin(r + 1) - first_id_route),
      first_row_route(all.row_route_begin(r)),
      num_row_routes(all.row_route_begin(r + 1) - first_row_route),
      arrivals(all.arrivals(r)),
      local_rows(num_id_routes, places_rows != nullptr) {
  if (!places_rows) return;
  const auto id_route_of = [&](const Arrival& a) { return all.row_routes()[a.row_route].id_route - first_id_route; };
  for (size_t begin = 0, end = 0; begin < arrivals.size(); begin = end) {
    end = end_of_columns(arrivals, begin);
    const TableFeature& table_feature = all.table_features()[arrivals[begin].table_feature];
    const bool sums = !all.sequence() && table_feature.pooling == PoolingType::kSum && !table_feature.starts_at_zero;
    bool taken = false;
    for (size_t i = begin; i < end; ++i) {
      Arrival& a = arrivals[i];
      if (a.row_route < 0 || all.id_routes()[all.row_routes()[a.row_route].id_route].rank != rank) continue;
      // Addition commutes, so the local row may be either of the first two.
      a.is_local = sums && !taken && i < begin + 2 && places_rows(all.row_routes()[a.row_route]);
      taken = taken || a.is_local;
      if (!a.is_local) local_rows[id_route_of(a)] = false;
    }
  }
  for (Arrival& a : arrivals) a.is_local = a.is_local && local_rows[id_route_of(a)];
}

size_t end_of_columns(const std::vector<Arrival>& arrivals, size_t begin) {
  const auto columns = [](const Arrival& a) { return std::tuple(a.table_feature, a.col, a.cols); };
  size_t end = begin + 1;
  while (end < arrivals.size() && columns(arrivals[end]) == columns(arrivals[begin])) ++end;
  return end;
}

int64_t Wiring::row_elements() const {
  int64_t width = row_routes_.empty() ? 0 : row_routes_.front().cols;
  for (const RowRoute& row_route : row_routes_) width = row_route.cols == width ? width : 0;
  return width;
}

}  // namespace tessera
