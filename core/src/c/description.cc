#include "c/description.h"

#include <algorithm>
#include <cstdint>

#include "config/json.h"
#include "planner/table_json.h"

namespace tessera::c {
namespace {

using config::JsonObject;
using config::JsonSource;

PlannerModule parse_module(const JsonObject& s, Description& out) {
  static const std::map<std::string, PlannerModule::Kind> kKinds{
      {"bags", PlannerModule::Kind::kEmbeddingBagCollection}, {"sequences", PlannerModule::Kind::kEmbeddingCollection}};
  s.only({"path", "kind", "is_weighted", "tables"});
  PlannerModule module;
  const auto kind = s.get<std::string>("kind", "bags");
  s.read("path", module.path);
  const auto known = kKinds.find(kind);
  if (known == kKinds.end()) s.wrong_at("kind", " is \"", kind, "\"; \"bags\" and \"sequences\" are known");
  module.kind = known->second;
  const bool bags = module.kind == PlannerModule::Kind::kEmbeddingBagCollection;
  module.is_weighted = bags && s.get<bool>("is_weighted", false);
  for (const JsonObject& table : s.objects("tables")) {
    ParameterConstraints constraints;
    module.tables.push_back(table_from(table, constraints));
    if (!bags) module.tables.back().pooling = PoolingType::kNone;
    out.constraints[module.tables.back().name] = std::move(constraints);
  }
  module.tables = validated(std::move(module.tables));
  return module;
}

// Parses {"over.weight": [1, 16]}.
std::vector<std::pair<std::string, Shape>> parse_dense(const JsonObject& s) {
  std::vector<std::pair<std::string, Shape>> out;
  for (const auto& [name, value] : s.value().items()) {
    const auto shape = s.get<std::vector<int64_t>>(name.c_str());
    int64_t elements = 1;
    for (const int64_t size : shape) {
      if (size < 0 || (elements *= std::max<int64_t>(1, size)) > INT32_MAX)
        s.wrong_at(name.c_str(), " must be a shape of at most 2^31 - 1 values");
    }
    out.emplace_back(name, Shape(shape.begin(), shape.end()));
  }
  return out;
}

ShardingRequest parse_request(const JsonObject& s) {
  s.only({"sharding_type", "compute_kernel", "ranks", "min_partition", "pieces"});
  ShardingRequest out;
  s.read("sharding_type", out.sharding_type);
  s.read("compute_kernel", out.compute_kernel);
  s.read("ranks", out.ranks);
  s.read("min_partition", out.min_partition);
  s.read("pieces", out.pieces);
  return out;
}

// Parses one number for all ranks, or a list with one for each.
std::vector<double> parse_gib(const JsonObject& s, const char* key) {
  if (!s.has(key)) return {};
  if (s.member(key).is_array()) return s.get<std::vector<double>>(key);
  return {s.get<double>(key)};
}

Topology parse_topology(const JsonObject& s, const std::optional<Topology>& given) {
  int world = 1, local_world = 0;
  std::string device = Topology{}.compute_device;
  for (const char* key : {"world_size", "local_world_size"}) {
    if (given && s.has(key)) s.wrong_at(key, " is that of the process group: leave it out");
  }
  if (given && s.has("compute_device")) s.wrong_at("compute_device", " is the model's device: leave it out");
  s.read("world_size", world);
  s.read("local_world_size", local_world);
  s.read("compute_device", device);
  Topology out = given ? *given : Topology::of(world, local_world, device);
  out.set_memory_gib(parse_gib(s, "hbm_gib"), parse_gib(s, "ddr_gib"), parse_gib(s, "ssd_gib"));
  return out;
}

}  // namespace

Description parse_description(const std::string& text) {
  const JsonSource source{"the model"};
  const auto value = config::parse_json(text, source);
  const JsonObject root(value, source);
  root.only({"modules", "dense", "optimizer", "kernel", "bounds_check", "seed", "gradient_scale",
             "data_parallel_gradient_scale"});
  Description out;
  for (const JsonObject& module : root.objects("modules")) out.modules.push_back(parse_module(module, out));
  if (out.modules.empty()) root.wrong_at("modules", " is empty");
  if (root.has("dense")) out.dense = parse_dense(root.object("dense"));
  if (root.has("optimizer")) out.sharded.optimizer = optimizer_from(root.object("optimizer"));
  root.read("kernel", out.sharded.kernel);
  root.read("seed", out.sharded.seed);
  out.sharded.bounds_check = bounds_check_from(root.get<std::string>("bounds_check", "fatal"));
  root.read("gradient_scale", out.sharded.gradient_scale);
  root.read("data_parallel_gradient_scale", out.sharded.data_parallel_gradient_scale);
  return out;
}

Planning parse_planning(const std::string& text, const Description& description,
                        const std::optional<Topology>& topology) {
  const JsonSource source{"the planner's settings"};
  const auto value = text.empty() ? nlohmann::ordered_json::object() : config::parse_json(text, source);
  const JsonObject root(value, source);
  root.only({"world_size", "local_world_size", "compute_device", "hbm_gib", "ddr_gib", "ssd_gib", "batch_size",
             "reserved_percentage", "torchrec_limits", "cost_model", "search", "time_limit_s", "shardings"});
  Planning out;
  out.options.topology = parse_topology(root, topology);
  out.options.constraints = description.constraints;
  out.options.kernel = description.sharded.kernel;
  root.read("batch_size", out.options.batch_size);
  root.read("reserved_percentage", out.options.storage_reservation.percentage);
  root.read("torchrec_limits", out.options.torchrec_limits);
  root.read("cost_model", out.options.cost_model);
  root.read("time_limit_s", out.options.time_limit_s);
  out.options.search = planner_search_from(root.get<std::string>("search", "balanced"));
  if (!root.has("shardings")) return out;
  for (const auto& [table, request] : root.object("shardings").members()) out.shardings[table] = parse_request(request);
  return out;
}

ShardingPlan requested_plan(const Runtime& runtime, const Description& description, const Planning& planning) {
  const Topology& topology = planning.options.topology;
  ShardingPlan plan{
      topology.world_size, topology.local_world_size, topology.compute_device, model_hash(description.modules), {}};
  for (const PlannerModule& module : description.modules) {
    std::map<std::string, ShardingRequest> requests;
    for (const EmbeddingBagConfig& table : module.tables) {
      const auto found = planning.shardings.find(table.name);
      if (found == planning.shardings.end())
        fail(Code::kInvalidArgument, "the planner's settings have shardings, but none for table \"", table.name, "\"");
      requests.insert(*found);
    }
    plan.modules.emplace_back(module.path, construct_module_sharding_plan(runtime, module.tables, requests, topology));
  }
  return plan;
}

}  // namespace tessera::c
