#include "c/description.h"

#include <algorithm>
#include <initializer_list>

#include "config/json.h"
#include "config/nearest.h"

namespace tessera::c {
namespace {

using Json = nlohmann::ordered_json;
using config::JsonObject;
using config::JsonSource;

// An object of which all keys are known, with the place that its errors begin with.
class Section {
 public:
  Section(const Json& value, std::string place, const std::vector<std::string>& known)
      : value_(value), place_(std::move(place)), object_(value, JsonSource{place_}) {
    for (const auto& [key, ignored] : value.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(Code::kInvalidArgument, place_, " has an unknown key \"", key, "\"; did you mean \"",
           config::nearest_name(key, known), "\"?");
    }
  }
  bool has(const char* key) const { return value_.contains(key) && !value_.at(key).is_null(); }
  template <class T>
  void read(const char* key, T& out) const {
    if (has(key)) out = object_.get<T>(key);
  }
  // An object or list inside: what it is, and its place.
  const Json& inside(const char* key) const { return value_.at(key); }
  std::string place_of(const char* key) const { return cat(place_, ", ", key); }
  const Json& list(const char* key) const {
    const Json& out = object_.member(key);
    if (!out.is_array()) fail(Code::kInvalidArgument, place_of(key), ": a list is expected");
    return out;
  }
  const std::string& place() const { return place_; }

 private:
  const Json& value_;
  std::string place_;
  JsonObject object_;
};

// {"name": "exact_sgd", "learning_rate": 0.1, ...}: all but name and max_gradient are the part's own.
OptimizerSpec parse_optimizer(const Json& value, const std::string& place) {
  const JsonObject object(value, JsonSource{place});
  OptimizerSpec out{.name = object.get<std::string>("name")};
  out.max_gradient = object.get<double>("max_gradient", 0);
  Json options = value;
  options.erase("name");
  options.erase("max_gradient");
  out.options = options.dump();
  return out;
}

EmbeddingBagConfig parse_table(const Section& s, ParameterConstraints& c) {
  EmbeddingBagConfig table;
  std::string data_type = "float32", pooling = "sum";
  s.read("name", table.name);
  s.read("num_embeddings", table.num_embeddings);
  s.read("embedding_dim", table.embedding_dim);
  s.read("feature_names", table.feature_names);
  s.read("data_type", data_type);
  s.read("pooling", pooling);
  table.data_type = dtype_from(data_type);
  table.pooling = pooling_from(pooling);
  if (s.has("init_range")) s.read("init_range", table.init_range.emplace());
  if (s.has("optimizer")) table.optimizer = parse_optimizer(s.inside("optimizer"), s.place_of("optimizer"));
  s.read("sharding_types", c.sharding_types);
  s.read("compute_kernels", c.compute_kernels);
  s.read("min_partition", c.min_partition);
  s.read("max_shards", c.max_shards);
  s.read("ranks", c.ranks);
  s.read("forbidden_ranks", c.forbidden_ranks);
  s.read("keep_together", c.keep_together);
  s.read("keep_apart", c.keep_apart);
  s.read("pooling_factors", c.pooling_factors);
  s.read("num_poolings", c.num_poolings);
  s.read("batch_sizes", c.batch_sizes);
  s.read("is_weighted", c.is_weighted);
  s.read("zipf_exponent", c.zipf_exponent);
  return table;
}

PlannerModule parse_module(const Json& value, const std::string& place, Description& out) {
  static const std::vector<std::string> kTableKeys{
      "name",        "num_embeddings",  "embedding_dim",  "feature_names",   "data_type",       "pooling",
      "init_range",  "optimizer",       "sharding_types", "compute_kernels", "min_partition",   "max_shards",
      "ranks",       "forbidden_ranks", "keep_together",  "keep_apart",      "pooling_factors", "num_poolings",
      "batch_sizes", "is_weighted",     "zipf_exponent"};
  static const std::map<std::string, PlannerModule::Kind> kKinds{
      {"bags", PlannerModule::Kind::kEmbeddingBagCollection}, {"sequences", PlannerModule::Kind::kEmbeddingCollection}};
  const Section s(value, place, {"path", "kind", "is_weighted", "tables"});
  PlannerModule module;
  std::string kind = "bags";
  bool is_weighted = false;
  s.read("path", module.path);
  s.read("kind", kind);
  s.read("is_weighted", is_weighted);
  const auto known = kKinds.find(kind);
  if (known == kKinds.end())
    fail(Code::kInvalidArgument, place, ", kind, is \"", kind, "\"; \"bags\" and \"sequences\" are known");
  module.kind = known->second;
  const bool bags = module.kind == PlannerModule::Kind::kEmbeddingBagCollection;
  module.is_weighted = bags && is_weighted;
  for (const Json& table : s.list("tables")) {
    ParameterConstraints constraints;
    const Section entry(table, cat(place, ", tables[", module.tables.size(), "]"), kTableKeys);
    module.tables.push_back(parse_table(entry, constraints));
    if (!bags) module.tables.back().pooling = PoolingType::kNone;
    out.constraints[module.tables.back().name] = std::move(constraints);
  }
  module.tables = validated(std::move(module.tables));
  return module;
}

ShardingRequest parse_request(const Section& s) {
  ShardingRequest out;
  s.read("sharding_type", out.sharding_type);
  s.read("compute_kernel", out.compute_kernel);
  s.read("ranks", out.ranks);
  s.read("min_partition", out.min_partition);
  s.read("pieces", out.pieces);
  return out;
}

// One number for all ranks, or a list with one for each.
std::vector<double> parse_gib(const Section& s, const char* key) {
  if (!s.has(key)) return {};
  std::vector<double> out;
  if (s.inside(key).is_array())
    s.read(key, out);
  else
    s.read(key, out.emplace_back());
  return out;
}

Topology parse_topology(const Section& s, const std::optional<Topology>& given) {
  int world = given ? given->world_size : 1, local_world = given ? given->local_world_size : 0;
  std::string device = given ? given->compute_device : Topology{}.compute_device;
  if (given && (s.has("world_size") || s.has("local_world_size")))
    fail(Code::kInvalidArgument, s.place(), " gives a world_size, but that is the process group's: leave it out");
  s.read("world_size", world);
  s.read("local_world_size", local_world);
  s.read("compute_device", device);
  Topology out = Topology::of(world, local_world, device);
  out.set_memory_gib(parse_gib(s, "hbm_gib"), parse_gib(s, "ddr_gib"));
  return out;
}

}  // namespace

Description parse_description(const std::string& text) {
  const JsonSource source{"the model"};
  const Json root = config::parse_json(text, source);
  const Section s(
      root, source.name,
      {"modules", "optimizer", "kernel", "bounds_check", "seed", "gradient_scale", "data_parallel_gradient_scale"});
  Description out;
  for (const Json& module : s.list("modules"))
    out.modules.push_back(parse_module(module, cat("the model, modules[", out.modules.size(), "]"), out));
  if (out.modules.empty()) fail(Code::kInvalidArgument, "the model has no modules");
  if (s.has("optimizer")) out.sharded.optimizer = parse_optimizer(s.inside("optimizer"), s.place_of("optimizer"));
  std::string bounds_check = "fatal";
  s.read("kernel", out.sharded.kernel);
  s.read("bounds_check", bounds_check);
  s.read("seed", out.sharded.seed);
  out.sharded.bounds_check = bounds_check_from(bounds_check);
  if (s.has("gradient_scale")) s.read("gradient_scale", out.sharded.gradient_scale.emplace());
  if (s.has("data_parallel_gradient_scale"))
    s.read("data_parallel_gradient_scale", out.sharded.data_parallel_gradient_scale.emplace());
  return out;
}

Planning parse_planning(const std::string& text, const Description& description,
                        const std::optional<Topology>& topology) {
  const JsonSource source{"the planner's settings"};
  const Json root = text.empty() ? Json::object() : config::parse_json(text, source);
  const Section s(root, source.name,
                  {"world_size", "local_world_size", "compute_device", "hbm_gib", "ddr_gib", "batch_size",
                   "reserved_percentage", "torchrec_limits", "cost_model", "search", "time_limit_s", "shardings"});
  Planning out;
  out.options.topology = parse_topology(s, topology);
  out.options.constraints = description.constraints;
  out.options.kernel = description.sharded.kernel;
  std::string search = "balanced";
  s.read("batch_size", out.options.batch_size);
  s.read("reserved_percentage", out.options.storage_reservation.percentage);
  s.read("torchrec_limits", out.options.torchrec_limits);
  s.read("cost_model", out.options.cost_model);
  s.read("search", search);
  s.read("time_limit_s", out.options.time_limit_s);
  out.options.search = planner_search_from(search);
  if (!s.has("shardings")) return out;
  for (const auto& [table, request] : s.inside("shardings").items()) {
    const Section entry(request, cat(source.name, ", sharding of table \"", table, "\""),
                        {"sharding_type", "compute_kernel", "ranks", "min_partition", "pieces"});
    out.shardings[table] = parse_request(entry);
  }
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
