// Reads and writes a plan's file, which docs/plans.md describes.
#include <set>

#include "config/json.h"
#include "tessera/sharding.h"
#include "wiring/tiling.h"

namespace tessera {

namespace {

using json = nlohmann::ordered_json;
using config::JsonObject;
using Combine = ParameterSharding::Combine;

constexpr int kFormat = 1;

struct CombineName {
  Combine combine;
  const char* name;
};
constexpr CombineName kCombineNames[] = {{Combine::kConcat, "concat"},
                                         {Combine::kSum, "sum"},
                                         {Combine::kHostSum, "host_sum"},
                                         {Combine::kDataParallel, "replica"}};

// Reads two numbers, [rows, columns], of a shard.
std::pair<int64_t, int64_t> two(const JsonObject& shard, const char* key) {
  constexpr int64_t kMost = int64_t{1} << 60;
  const auto values = shard.get<std::vector<int64_t>>(key);
  if (values.size() != 2) shard.wrong_at(key, " has ", values.size(), " numbers; [rows, columns] is expected");
  for (const int64_t value : values) {
    if (value < 0 || value > kMost) shard.wrong_at(key, " has ", value, "; sizes from 0 to ", kMost, " are expected");
  }
  return {values[0], values[1]};
}

Combine combine_from(const JsonObject& table) {
  const auto name = table.get<std::string>("combine");
  for (const CombineName& c : kCombineNames) {
    if (name == c.name) return c.combine;
  }
  table.wrong_at("combine", " is \"", name, "\"; concat, sum, host_sum or replica is expected");
}

// A file does not state a table's size: it is the extent of the shards, which must cover all of it.
void check_cover(const ParameterSharding& sharding, const JsonObject& table) {
  if (sharding.shards.empty()) table.wrong_at("shards", " is empty");
  std::vector<tsr_rectangle> pieces;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t routed_rows = 0;
  const ShardMetadata* replicated = nullptr;
  for (size_t i = 0; i < sharding.shards.size(); ++i) {
    const ShardMetadata& s = sharding.shards[i];
    if (s.replicated && replicated != nullptr) {
      if (s.row != replicated->row || s.rows != replicated->rows || s.col != replicated->col ||
          s.cols != replicated->cols)
        table.wrong_at("shards", ": shard ", i, " is not a copy of the first replica");
      continue;
    }
    if (s.replicated) replicated = &s;
    pieces.push_back({s.row, s.rows, s.col, s.cols});
    rows = std::max(rows, s.row + s.rows);
    cols = std::max(cols, s.col + s.cols);
    if (s.col == sharding.shards.front().col && __builtin_add_overflow(routed_rows, s.rows, &routed_rows)) {
      table.wrong_at("shards", " have more rows than can be counted");
    }
  }
  std::string why;
  if (sharding.combine == Combine::kDataParallel) {
    for (const tsr_rectangle& p : pieces) {
      if (why.empty()) why = why_not_tiling(std::span<const tsr_rectangle>(&p, 1), rows, cols);
    }
  } else {
    why = sharding.routed ? why_not_tiling_routed(pieces, routed_rows, cols) : why_not_tiling(pieces, rows, cols);
  }
  if (!why.empty()) table.wrong_at("shards", ": ", why);
}

ParameterSharding sharding_from(const JsonObject& table, int world_size) {
  ParameterSharding out{.sharding_type = table.get<std::string>("sharding_type"),
                        .compute_kernel = table.get<std::string>("compute_kernel"),
                        .combine = combine_from(table)};
  table.read("routed", out.routed);
  table.read("cookie", out.cookie);
  for (const JsonObject& shard : table.objects("shards")) {
    shard.only({"sizes", "offsets", "rank", "replica"});
    const auto [rows, cols] = two(shard, "sizes");
    const auto [row, col] = two(shard, "offsets");
    ShardMetadata s{rows, cols, row, col, shard.within("rank", 0, world_size - 1)};
    shard.read("replica", s.replicated);
    out.shards.push_back(s);
  }
  check_cover(out, table);
  return out;
}

json sharding_json(const std::string& name, const ParameterSharding& sharding) {
  json out{{"name", name},
           {"sharding_type", sharding.sharding_type},
           {"compute_kernel", sharding.compute_kernel},
           {"combine", kCombineNames[static_cast<size_t>(sharding.combine)].name}};
  if (sharding.routed) out["routed"] = true;
  if (sharding.cookie != 0) out["cookie"] = sharding.cookie;
  json& shards = out["shards"] = json::array();
  for (const ShardMetadata& s : sharding.shards) {
    json& shard = shards.emplace_back(json{{"sizes", {s.rows, s.cols}}, {"offsets", {s.row, s.col}}, {"rank", s.rank}});
    if (s.replicated) shard["replica"] = true;
  }
  return out;
}

// Writes one line per shard, which is readable, and makes the diff of two similar plans small.
std::string table_text(const json& table) {
  std::string out = "        {";
  for (const auto& [key, value] : table.items()) {
    if (key != "shards") out += str_cat(json(key).dump(), ": ", value.dump(), ", ");
  }
  out += "\"shards\": [";
  bool first = true;
  for (const json& shard : table["shards"]) {
    out += str_cat(first ? "\n" : ",\n", "          ", shard.dump());
    first = false;
  }
  return out + "]}";
}

ShardingPlan plan_from(const JsonObject& root) {
  root.only({"tessera_plan", "world_size", "local_world_size", "compute_device", "model_hash", "sharders", "modules"});
  root.within("tessera_plan", kFormat, kFormat);
  ShardingPlan plan;
  constexpr int kMostRanks = 1 << 20;
  plan.world_size = root.within("world_size", 1, kMostRanks);
  plan.local_world_size = root.within("local_world_size", 1, plan.world_size);
  if (plan.world_size % plan.local_world_size != 0)
    root.wrong("world_size ", plan.world_size, " is not a multiple of local_world_size ", plan.local_world_size);
  plan.compute_device = root.get<std::string>("compute_device");
  root.read("model_hash", plan.model_hash);
  root.read("sharders", plan.sharders);
  std::set<std::string> paths;
  for (const JsonObject& module : root.objects("modules", "path")) {
    module.only({"path", "tables"});
    const auto path = module.get<std::string>("path");
    if (!paths.insert(path).second) root.wrong("module \"", path, "\" is there twice");
    EmbeddingModuleShardingPlan tables;
    for (const JsonObject& table : module.objects("tables", "name")) {
      table.only({"name", "sharding_type", "compute_kernel", "combine", "routed", "cookie", "shards"});
      const auto name = table.get<std::string>("name");
      if (tables.contains(name)) module.wrong_at("tables", ": table ", name, " is there twice");
      tables.add(name, sharding_from(table, plan.world_size));
    }
    plan.modules.emplace_back(path, std::move(tables));
  }
  return plan;
}

}  // namespace

std::string ShardingPlan::json() const {
  using nlohmann::ordered_json;
  std::string out = str_cat("{\n  \"tessera_plan\": ", kFormat, ",\n  \"world_size\": ", world_size,
                            ",\n  \"local_world_size\": ", local_world_size,
                            ",\n  \"compute_device\": ", ordered_json(compute_device).dump());
  if (!model_hash.empty()) out += str_cat(",\n  \"model_hash\": ", ordered_json(model_hash).dump());
  if (!sharders.empty()) out += str_cat(",\n  \"sharders\": ", ordered_json(sharders).dump());
  out += ",\n  \"modules\": [";
  for (size_t m = 0; m < modules.size(); ++m) {
    out += str_cat(m == 0 ? "\n" : ",\n", "    {\"path\": ", ordered_json(modules[m].first).dump(), ", \"tables\": [");
    const auto& tables = modules[m].second.tables();
    for (size_t t = 0; t < tables.size(); ++t) {
      out += (t == 0 ? "\n" : ",\n") + table_text(sharding_json(tables[t].first, tables[t].second));
    }
    out += "\n      ]}";
  }
  return out + "\n  ]\n}\n";
}

ShardingPlan ShardingPlan::from_json(const std::string& text) {
  const config::JsonSource source{"the sharding plan"};
  const auto root = config::parse_json(text, source);
  return plan_from({root, source});
}

}  // namespace tessera
