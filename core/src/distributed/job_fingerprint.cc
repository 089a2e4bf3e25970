#include "distributed/job_fingerprint.h"

#include <algorithm>
#include <cstring>

#include "config/fnv1a.h"
#include "tessera/quantization.h"
#include "tessera/runtime.h"

namespace tessera {

namespace {

std::string other_layouts(const std::vector<JobFingerprint::Table>& tables, const ProcessGroup& group) {
  struct Record {
    uint64_t config, layout;
  };
  std::string mine;
  for (const JobFingerprint::Table& t : tables) {
    const Record record{t.config, t.layout};
    mine.append(reinterpret_cast<const char*>(&record), sizeof(record));
  }
  const std::vector<std::string> all = group.all_gather_text(mine, "layouts");
  const auto record = [&](size_t rank, size_t table) {
    Record out{};
    std::memcpy(&out, all[rank].data() + table * sizeof(out), sizeof(out));
    return out;
  };
  for (const std::string& theirs : all) {
    if (theirs.size() != mine.size()) return "";  // they have other tables
  }
  for (size_t t = 0; t < tables.size(); ++t) {
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (record(rank, t).config != record(0, t).config) return "";
      if (record(rank, t).layout == record(0, t).layout) continue;
      return str_cat(
          "sharder ", parse_component_name(tables[t].sharder).id, ", table \"", tables[t].name,
          "\": the layout on rank ", rank,
          " differs from that on rank 0: give all ranks the same plan; if each rank planned itself, propose must "
          "give the same in every process");
    }
  }
  return "";
}

// Null routers are skipped.
std::string other_routes(const std::vector<RowRouterPtr>& routers, const ProcessGroup& group) {
  struct Record {
    uint64_t table, routes;
  };
  std::vector<const RowRouter*> all;
  std::vector<Record> mine;
  for (const RowRouterPtr& router : routers) {
    if (!router) continue;
    all.push_back(router.get());
    mine.push_back({fnv1a(str_cat(router->table().name, ' ', router->table().num_embeddings)), router->fingerprint()});
  }
  const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(Record));
  size_t differs = all.size();
  for (const std::string& theirs : group.all_gather_text(text, "routes")) {
    if (theirs.size() != text.size()) return "";  // they have other tables
    for (size_t t = 0; t < mine.size(); ++t) {
      Record record{};
      std::memcpy(&record, theirs.data() + t * sizeof(record), sizeof(record));
      if (record.table != mine[t].table) return "";
      if (record.routes != mine[t].routes) differs = std::min(differs, t);
    }
  }
  if (differs == all.size()) return "";
  const RowRouter& router = *all[differs];
  const RowRouter::Sample here = router.sample();
  std::vector<int64_t> places;  // row set and row of each id
  for (size_t i = 0; i < here.ids.size(); ++i) places.insert(places.end(), {here.row_sets[i], here.rows[i]});
  const Tensor of_rank_0 = Tensor::from(places);
  group.broadcast(of_rank_0, 0, "routes").wait();
  const int64_t* there = of_rank_0.data<int64_t>();
  std::string found;
  for (size_t i = 0; i < here.ids.size() && found.empty(); ++i, there += 2) {
    if (here.row_sets[i] == there[0] && here.rows[i] == there[1]) continue;
    found = str_cat(router.who(), ": route takes id ", here.ids[i], " to row ", here.rows[i], " of row set ",
                    here.row_sets[i], " on rank ", group.rank(), ", but to row ", there[1], " of row set ", there[0],
                    " on rank 0");
  }
  for (const std::string& theirs : group.all_gather_text(found, "routes")) {
    if (!theirs.empty()) return theirs + ": it must give the same on every rank";
  }
  return str_cat(router.who(), ": route gives different answers to equal calls");
}

}  // namespace

JobFingerprint fingerprint_of(const std::vector<EmbeddingBagConfig>& tables, const EmbeddingModuleShardingPlan& plan,
                              std::vector<RowRouterPtr> routers, bool sequence, const ShardedModuleOptions& options,
                              const ProcessGroup& group) {
  JobFingerprint out;
  uint64_t h = fnv1a(str_cat(
      group.world_size(), ' ', group.local_world_size(), ' ', sequence, ' ', options.is_weighted, ' ', options.seed,
      ' ', options.optimizer.name, ' ', options.optimizer.options, ' ', options.gradient_scale.value_or(-1), ' ',
      options.data_parallel_gradient_scale.value_or(-1), ' ', static_cast<int>(group.joins().rows)));
  for (const EmbeddingBagConfig& t : tables) {
    const ParameterSharding& p = plan.at(t.name);
    JobFingerprint::Table& table = out.tables.emplace_back(JobFingerprint::Table{t.name, p.sharding_type, 0, 0});
    table.config = fnv1a(str_cat(t.name, ' ', t.num_embeddings, t.any_id ? " any " : " ", t.embedding_dim, ' ',
                                 static_cast<int>(t.pooling), ' ', to_string(t.data_type), ' ',
                                 t.row_format ? sdk::to_string(*t.row_format) : "",
                                 t.remapping ? t.remapping->ids() : 0, ' ', t.optimizer.name, t.optimizer.options));
    for (const std::string& feature : t.feature_names) table.config = fnv1a(feature + ",", table.config);
    table.layout =
        fnv1a(str_cat(static_cast<int>(p.combine), p.routed ? p.sharding_type : "", p.cookie, ' ', p.compute_kernel));
    for (const ShardMetadata& s : p.shards)
      table.layout = fnv1a(str_cat(s.row, ' ', s.rows, ' ', s.col, ' ', s.cols, ' ', s.rank, s.replicated ? '*' : ';'),
                           table.layout);
    h = fnv1a(str_cat(table.config, ' ', table.layout), h);
  }
  for (const RowRouterPtr& router : routers) h = router ? fnv1a(str_cat(router->fingerprint()), h) : h;
  out.all = h;
  out.routers = std::move(routers);
  return out;
}

std::string what_differs(const JobFingerprint& job, const ProcessGroup& group) {
  const std::string layouts = other_layouts(job.tables, group);
  return layouts.empty() ? other_routes(job.routers, group) : layouts;
}

}  // namespace tessera
