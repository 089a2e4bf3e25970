// A plan's file form. docs/plans.md describes it.
#include <limits>
#include <set>

#include "config/json.h"
#include "tessera/sharding_plan.h"
#include "wiring/tiling.h"

namespace tessera {

namespace {

using json = nlohmann::ordered_json;
using Combine = ParameterSharding::Combine;

constexpr int kFormat = 1;

struct CombineName {
  Combine combine;
  const char* name;
};
constexpr CombineName kCombineNames[] = {{Combine::kConcat, "concat"},
                                         {Combine::kSum, "sum"},
                                         {Combine::kHostSum, "host_sum"},
                                         {Combine::kReplica, "replica"}};

[[noreturn]] void bad(const std::string& where, const std::string& what) {
  fail(Code::kInvalidArgument, "sharding plan", where.empty() ? "" : ", ", where, ": ", what);
}

const json& field(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) bad(where, cat("\"", key, "\" is missing"));
  return *found;
}

void only(const json& object, const std::set<std::string>& keys, const std::string& where) {
  if (!object.is_object()) bad(where, "an object {...} is expected here");
  for (const auto& [key, value] : object.items()) {
    if (keys.contains(key)) continue;
    std::string known;
    for (const std::string& k : keys) known += (known.empty() ? "" : ", ") + k;
    bad(where, cat("unknown key \"", key, "\"; known are ", known));
  }
}

int64_t integer(const json& value, const char* key, int64_t least, int64_t most, const std::string& where) {
  const bool is_integer =
      value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  if (!is_integer || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    bad(where, cat("\"", key, "\" is ", value.dump(), "; an integer from ", least, " to ", most, " is expected"));
  }
  return value.get<int64_t>();
}

std::string text(const json& object, const char* key, const std::string& where) {
  const json& value = field(object, key, where);
  if (!value.is_string()) bad(where, cat("\"", key, "\" is ", value.dump(), "; a text is expected"));
  return value.get<std::string>();
}

std::pair<int64_t, int64_t> two(const json& object, const char* key, const std::string& where) {
  const json& value = field(object, key, where);
  if (!value.is_array() || value.size() != 2) {
    bad(where, cat("\"", key, "\" is ", value.dump(), "; [rows, columns] is expected"));
  }
  constexpr int64_t kMost = int64_t{1} << 60;
  return {integer(value[0], key, 0, kMost, where), integer(value[1], key, 0, kMost, where)};
}

const json& array(const json& object, const char* key, const std::string& where) {
  const json& value = field(object, key, where);
  if (!value.is_array()) bad(where, cat("\"", key, "\" is no list"));
  return value;
}

Combine combine_from(const std::string& name, const std::string& where) {
  for (const CombineName& c : kCombineNames) {
    if (name == c.name) return c.combine;
  }
  bad(where, cat("\"combine\" is \"", name, "\"; concat, sum, host_sum or replica is expected"));
}

// The table's size is what the shards reach; they must cover all of it.
void check_cover(const ParameterSharding& sharding, const std::string& where) {
  if (sharding.shards.empty()) bad(where, "\"shards\" is empty");
  std::vector<tsr_rectangle> pieces;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t routed_rows = 0;
  for (const ShardMetadata& s : sharding.shards) {
    pieces.push_back({s.row, s.rows, s.col, s.cols});
    rows = std::max(rows, s.row + s.rows);
    cols = std::max(cols, s.col + s.cols);
    if (s.col == sharding.shards.front().col && __builtin_add_overflow(routed_rows, s.rows, &routed_rows)) {
      bad(where, "its shards have more rows than can be counted");
    }
  }
  std::string why;
  if (sharding.combine == Combine::kReplica) {
    for (const tsr_rectangle& p : pieces) {
      if (why.empty()) why = why_not_tiling(std::span<const tsr_rectangle>(&p, 1), rows, cols);
    }
  } else {
    why = sharding.routed ? why_not_tiling_routed(pieces, routed_rows, cols) : why_not_tiling(pieces, rows, cols);
  }
  if (!why.empty()) bad(where, why);
}

ParameterSharding sharding_from(const json& value, int world_size, const std::string& where) {
  ParameterSharding out;
  out.sharding_type = text(value, "sharding_type", where);
  out.compute_kernel = text(value, "compute_kernel", where);
  out.combine = combine_from(text(value, "combine", where), where);
  if (const auto routed = value.find("routed"); routed != value.end()) {
    if (!routed->is_boolean()) bad(where, "\"routed\" is neither true nor false");
    out.routed = routed->get<bool>();
  }
  if (value.contains("cookie")) out.cookie = integer(value["cookie"], "cookie", INT64_MIN, INT64_MAX, where);
  for (const json& shard : array(value, "shards", where)) {
    const std::string here = cat(where, ", shard ", out.shards.size());
    only(shard, {"sizes", "offsets", "rank"}, here);
    const auto [rows, cols] = two(shard, "sizes", here);
    const auto [row, col] = two(shard, "offsets", here);
    const auto rank = static_cast<int>(integer(field(shard, "rank", here), "rank", 0, world_size - 1, here));
    out.shards.push_back({rows, cols, row, col, rank});
  }
  check_cover(out, where);
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
    shards.push_back({{"sizes", {s.rows, s.cols}}, {"offsets", {s.row, s.col}}, {"rank", s.rank}});
  }
  return out;
}

// One line per shard: readable, and small changes give small differences.
std::string table_text(const json& table) {
  std::string out = "        {";
  for (const auto& [key, value] : table.items()) {
    if (key != "shards") out += cat(json(key).dump(), ": ", value.dump(), ", ");
  }
  out += "\"shards\": [";
  bool first = true;
  for (const json& shard : table["shards"]) {
    out += cat(first ? "\n" : ",\n", "          ", shard.dump());
    first = false;
  }
  return out + "]}";
}

ShardingPlan plan_from(const json& root) {
  only(root, {"tessera_plan", "world_size", "local_world_size", "compute_device", "model_hash", "sharders", "modules"},
       "");
  integer(field(root, "tessera_plan", ""), "tessera_plan", kFormat, kFormat, "");
  ShardingPlan plan;
  constexpr int64_t kMostRanks = 1 << 20;
  plan.world_size = static_cast<int>(integer(field(root, "world_size", ""), "world_size", 1, kMostRanks, ""));
  plan.local_world_size =
      static_cast<int>(integer(field(root, "local_world_size", ""), "local_world_size", 1, plan.world_size, ""));
  if (plan.world_size % plan.local_world_size != 0) {
    bad("", cat("world_size ", plan.world_size, " is no multiple of local_world_size ", plan.local_world_size));
  }
  plan.compute_device = text(root, "compute_device", "");
  if (root.contains("model_hash")) plan.model_hash = text(root, "model_hash", "");
  if (root.contains("sharders")) {
    for (const json& id : array(root, "sharders", "")) {
      if (!id.is_string()) bad("", cat("\"sharders\" has ", id.dump(), "; texts are expected"));
      plan.sharders.push_back(id.get<std::string>());
    }
  }
  std::set<std::string> paths;
  for (const json& module : array(root, "modules", "")) {
    only(module, {"path", "tables"}, "a module");
    const std::string path = text(module, "path", "a module");
    const std::string where = cat("module \"", path, "\"");
    if (!paths.insert(path).second) bad(where, "it is there twice");
    EmbeddingModuleShardingPlan tables;
    for (const json& table : array(module, "tables", where)) {
      only(table, {"name", "sharding_type", "compute_kernel", "combine", "routed", "cookie", "shards"}, where);
      const std::string name = text(table, "name", where);
      if (tables.contains(name)) bad(where, cat("table ", name, " is there twice"));
      tables.add(name, sharding_from(table, plan.world_size, cat(where, ", table ", name)));
    }
    plan.modules.emplace_back(path, std::move(tables));
  }
  return plan;
}

}  // namespace

std::string ShardingPlan::json() const {
  using nlohmann::ordered_json;
  std::string out = cat("{\n  \"tessera_plan\": ", kFormat, ",\n  \"world_size\": ", world_size,
                        ",\n  \"local_world_size\": ", local_world_size,
                        ",\n  \"compute_device\": ", ordered_json(compute_device).dump());
  if (!model_hash.empty()) out += cat(",\n  \"model_hash\": ", ordered_json(model_hash).dump());
  if (!sharders.empty()) out += cat(",\n  \"sharders\": ", ordered_json(sharders).dump());
  out += ",\n  \"modules\": [";
  for (size_t m = 0; m < modules.size(); ++m) {
    out += cat(m == 0 ? "\n" : ",\n", "    {\"path\": ", ordered_json(modules[m].first).dump(), ", \"tables\": [");
    const auto& tables = modules[m].second.tables();
    for (size_t t = 0; t < tables.size(); ++t) {
      out += (t == 0 ? "\n" : ",\n") + table_text(sharding_json(tables[t].first, tables[t].second));
    }
    out += "\n      ]}";
  }
  return out + "\n  ]\n}\n";
}

ShardingPlan ShardingPlan::from_json(const std::string& text) {
  return plan_from(config::parse_json(text, {"the sharding plan"}));
}

}  // namespace tessera
