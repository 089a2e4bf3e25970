// Area sharded_modules (tests/conformance/SHARDING.md section 9): every case runs in as many processes as it has ranks,
// which meet over the default transport. Pooled outputs are compared by key, because ours keep the unsharded order.
#include <algorithm>

#include "conformance/runner.h"
#include "spawn.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"
#include "tessera/sharding.h"

namespace tessera::cli {
namespace {

json to_json(const Tensor& t) {
  json data = json::array();
  for (int64_t i = 0; i < t.numel(); ++i) data.push_back(t.item(i));
  return {{"shape", t.shape()}, {"dtype", to_string(t.dtype())}, {"data", std::move(data)}};
}

std::vector<EmbeddingBagConfig> tables_from(const json& given) {
  std::vector<EmbeddingBagConfig> tables;
  for (const json& t : given.at("tables")) {
    EmbeddingBagConfig c{
        .name = t.at("name"),
        .num_embeddings = t.at("num_embeddings"),
        .embedding_dim = t.at("embedding_dim"),
        .feature_names = t.at("feature_names").get<std::vector<std::string>>(),
        .pooling = t.at("pooling").is_null() ? PoolingType::kNone : pooling_from(t.at("pooling").get<std::string>())};
    if (t.contains("data_type")) c.data_type = dtype_from(t.at("data_type").get<std::string>());
    tables.push_back(std::move(c));
  }
  return tables;
}

Topology topology_of(const json& given) {
  return Topology::of(given.at("world_size"), given.at("local_world_size"), "cpu");
}

ParameterSharding sharding_from(const json& p) {
  ParameterSharding sharding{.sharding_type = p.at("sharding_type"), .compute_kernel = p.at("compute_kernel")};
  if (p.contains("shards") && !p.at("shards").is_null()) {
    for (const json& s : p.at("shards")) {
      sharding.shards.push_back(
          {s.at("sizes").at(0), s.at("sizes").at(1), s.at("offsets").at(0), s.at("offsets").at(1), s.at("rank")});
    }
  }
  return sharding;
}

EmbeddingModuleShardingPlan plan_from(const Runtime& runtime, const json& given) {
  EmbeddingModuleShardingPlan plan;
  for (const EmbeddingBagConfig& table : tables_from(given)) {
    plan.add(table.name, completed(runtime, table, sharding_from(given.at("plan").at(table.name)), topology_of(given)));
  }
  return plan;
}

ShardedModuleOptions options_from(const json& given, const std::string& kernel) {
  ShardedModuleOptions options{.kernel = kernel, .is_weighted = given.at("is_weighted")};
  const json& optimizer = given.at("optimizer");
  std::string name = optimizer.at("name");
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  json settings = {{"learning_rate", optimizer.at("learning_rate")}};
  if (optimizer.contains("eps") && !optimizer.at("eps").is_null()) settings["eps"] = optimizer.at("eps");
  options.optimizer = {name, settings.dump(), 0};
  if (!given.at("gradient_division").get<bool>()) options.gradient_scale = 1.0;
  return options;
}

KeyedJaggedTensor input_from(const json& in) {
  KeyedJaggedTensor::Options o;
  o.keys = in.at("keys").get<std::vector<std::string>>();
  o.values = Tensor::from(in.at("values").get<std::vector<int64_t>>());
  o.lengths = Tensor::from(in.at("lengths").get<std::vector<int64_t>>());
  if (in.contains("weights") && !in.at("weights").is_null()) {
    const json& w = in.at("weights");
    o.weights = w.is_object() ? tensor_from(w) : Tensor::from(w.get<std::vector<float>>());
  }
  o.stride = in.at("stride").get<int64_t>();
  return KeyedJaggedTensor(std::move(o));
}

Tensor rectangle(const Tensor& table, const ShardMetadata& w) {
  Tensor out = Tensor::empty({w.rows, w.cols});
  for (int64_t r = 0; r < w.rows; ++r) {
    std::copy_n(table.data<float>() + (w.row + r) * table.size(1) + w.col, w.cols, out.data<float>() + r * w.cols);
  }
  return out;
}

// The state of a rank after a step: weights and optimizer state, in the case file's words.
void describe_state(const ShardedEmbeddings& module, const std::string& prefix, int rank, json& out) {
  out["shards"] = json::object();
  out["state"] = json::object();
  const auto held = module.held_shards();
  for (const EmbeddingBagConfig& table : module.tables()) {
    const ParameterSharding& sharding = module.plan().at(table.name);
    const bool data_parallel = sharding.combine == ParameterSharding::Combine::kDataParallel;
    json& shards = out["shards"][table.name] = json::array();
    int64_t rows_before = 0;
    for (size_t i = 0; i < sharding.shards.size(); ++i) {
      const ShardMetadata& w = sharding.shards[i];
      const int64_t first_state = data_parallel ? 0 : rows_before;
      rows_before += w.rows;
      if (w.rank != rank) continue;
      const HeldShard shard{table.name, w, static_cast<int>(i)};
      shards.push_back(
          {{"sizes", {w.rows, w.cols}}, {"offsets", {w.row, w.col}}, {"weight", to_json(module.weight(shard))}});
      for (const auto& [name, value] : module.states(shard)) {
        const std::string key =
            prefix + table.name + ".weight|" + (data_parallel ? "sum(data_parallel)" : table.name + "." + name);
        json entry = {{"values", to_json(data_parallel ? value.reshape({-1, 1}) : value)}};
        entry["sizes"] = data_parallel ? json{w.rows, w.cols} : json(value.shape());
        entry["offsets"] = data_parallel ? json{0, 0} : json{first_state};
        out["state"][key].push_back(std::move(entry));
      }
    }
  }
  out["data_parallel_grad"] = json::object();
  for (const auto& [name, grad] : module.data_parallel_gradients()) out["data_parallel_grad"][name] = to_json(grad);
}

// Names and kinds of the entries of a state dict, and of what this rank's fused optimizers update.
json describe_names(const ShardedEmbeddings& module) {
  json out = {{"state_dict", json::array()}, {"fused", json::array()}};
  const auto keys = module.state_dict_keys();
  for (size_t t = 0; t < keys.size(); ++t) {
    const EmbeddingBagConfig& table = module.tables()[t];
    const bool data_parallel = module.plan().at(table.name).combine == ParameterSharding::Combine::kDataParallel;
    out["state_dict"].push_back({{"key", keys[t]},
                                 {"kind", data_parallel ? "Tensor" : "ShardedTensor"},
                                 {"shape", {table.num_embeddings, table.embedding_dim}}});
  }
  for (const std::string& key : module.fused_optimizer()->param_keys()) {
    if (key.find('#') == std::string::npos) out["fused"].push_back(key);  // "#1" marks another shard of the same table
  }
  return out;
}

void load_weights(ShardedEmbeddings& module, const json& weights) {
  for (const HeldShard& shard : module.held_shards()) {
    module.set_weight(shard, rectangle(tensor_from(weights.at(shard.table)), shard.where));
  }
}

// Permutes a recorded gradient's columns from the record's key order to the module's.
Tensor permuted(const Tensor& grad, const json& recorded, const std::vector<std::string>& keys,
                const KeyedTensor& like) {
  const auto from_keys = recorded.at("keys").get<std::vector<std::string>>();
  const KeyedTensor source(from_keys, recorded.at("length_per_key").get<std::vector<int64_t>>(), grad);
  Tensor out = Tensor::empty(like.values().shape());
  const auto offsets = like.offset_per_key();
  for (size_t k = 0; k < keys.size(); ++k) {
    const Tensor part = source[keys[k]];
    for (int64_t b = 0; b < part.size(0); ++b) {
      std::copy_n(part.data<float>() + b * part.size(1), part.size(1),
                  out.data<float>() + b * out.size(1) + offsets[k]);
    }
  }
  return out;
}

json run_pooled(ShardedEmbeddingBagCollection module, const json& given, const json& expect, int rank) {
  load_weights(module, given.at("weights"));
  json steps = json::array();
  for (size_t s = 0; s < given.at("steps").get<size_t>(); ++s) {
    json step;
    auto out = module.forward(input_from(given.at("inputs").at(static_cast<size_t>(rank)))).wait();
    step["keys"] = out.values.keys();
    for (const auto& [key, value] : out.values.to_dict()) step["output"][key] = to_json(value);
    const Tensor grad = tensor_from(given.at("output_grads").at(s).at(static_cast<size_t>(rank)));
    module.backward(out, permuted(grad, expect.at("steps").at(s).at("outputs").at(static_cast<size_t>(rank)),
                                  out.values.keys(), out.values));
    describe_state(module, "embedding_bags.", rank, step);
    step["names"] = describe_names(module);
    steps.push_back(std::move(step));
  }
  return steps;
}

json run_sequence(ShardedEmbeddingCollection module, const json& given, int rank) {
  load_weights(module, given.at("weights"));
  json steps = json::array();
  for (size_t s = 0; s < given.at("steps").get<size_t>(); ++s) {
    json step;
    auto out = module.forward(input_from(given.at("inputs").at(static_cast<size_t>(rank)))).wait();
    std::vector<std::pair<std::string, Tensor>> grads;
    for (const auto& [key, value] : out.values) {
      step["output"][key] = {{"lengths", to_json(value.lengths())}, {"values", to_json(value.values())}};
      grads.emplace_back(key, tensor_from(given.at("output_grads").at(s).at(static_cast<size_t>(rank)).at(key)));
    }
    module.backward(out, grads);
    describe_state(module, "embeddings.", rank, step);
    step["names"] = describe_names(module);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::string run_rank(const json& given, const json& expect, const std::string& kernel, const RankEnvironment& where) {
  const Runtime runtime;
  const auto group = ProcessGroup::connect(runtime, where);
  const auto plan = plan_from(runtime, given);
  const auto tables = tables_from(given);
  const auto options = options_from(given, kernel);
  const json steps =
      given.at("module") == "EmbeddingCollection"
          ? run_sequence(EmbeddingCollectionSharder(runtime, options).shard(tables, plan, group), given, where.rank)
          : run_pooled(EmbeddingBagCollectionSharder(runtime, options).shard(tables, plan, group), given, expect,
                       where.rank);
  group->barrier();
  return steps.dump();
}

void check_pooled(Checker& check, const std::string& at, const json& want, const json& got) {
  const auto keys = want.at("keys").get<std::vector<std::string>>();
  std::vector<int64_t> lengths;
  if (want.contains("length_per_key")) lengths = want.at("length_per_key").get<std::vector<int64_t>>();
  const Tensor values = tensor_from(want.at("values"));
  if (lengths.empty()) {
    for (const std::string& key : keys) lengths.push_back(got.at("output").at(key).at("shape").at(1).get<int64_t>());
  }
  check.equal(at + ".number of keys", keys.size(), got.at("output").size());
  for (const auto& [key, value] : KeyedTensor(keys, lengths, values).to_dict()) {
    if (!got.at("output").contains(key)) {
      check.fail(at, "no output \"" + key + "\"");
      continue;
    }
    check.tensor(at + "." + key, to_json(value), tensor_from(got.at("output").at(key)));
  }
}

void check_sequence(Checker& check, const std::string& at, const json& want, const json& got) {
  check.equal(at + ".number of keys", want.size(), got.at("output").size());
  for (const auto& [key, value] : want.items()) {
    if (!got.at("output").contains(key)) {
      check.fail(at, "no output \"" + key + "\"");
      continue;
    }
    check.tensor(at + "." + key + ".values", value.at("values"), tensor_from(got.at("output").at(key).at("values")));
    check.equal(at + "." + key + ".lengths", value.at("lengths").at("data"),
                got.at("output").at(key).at("lengths").at("data"));
  }
}

void check_pieces(Checker& check, const std::string& at, const json& want, const json& got, const char* tensor) {
  check.equal(at + ".count", want.size(), got.size());
  for (size_t i = 0; i < std::min(want.size(), got.size()); ++i) {
    check.equal(at + ".sizes", want[i].at("sizes"), got[i].at("sizes"));
    check.equal(at + ".offsets", want[i].at("offsets"), got[i].at("offsets"));
    check.tensor(at + "." + tensor, want[i].at(tensor), tensor_from(got[i].at(tensor)));
  }
}

void check_rank_after_step(Checker& check, const std::string& at, const json& want, size_t rank, bool has_state,
                           const json& got) {
  for (const auto& [table, pieces] : want.at("shards_after").at(rank).items()) {
    check_pieces(check, at + ".shards." + table, pieces, got.at("shards").at(table), "weight");
  }
  if (has_state) {
    const json& states = want.at("optimizer_state_after").at(rank);
    check.equal(at + ".number of states", states.size(), got.at("state").size());
    for (const auto& [key, pieces] : states.items()) {
      check_pieces(check, at + "." + key, pieces, got.at("state").value(key, json::array()), "values");
    }
  }
  for (const auto& [table, grad] : want.at("data_parallel_grad").items()) {
    check.tensor(at + ".data_parallel_grad." + table, grad, tensor_from(got.at("data_parallel_grad").at(table)));
  }
}

void check_names(CaseContext& c, const json& names) {
  for (const auto& [field, mine] : {std::pair("state_dict", "state_dict"), {"fused_optimizer_keys", "fused"}}) {
    if (!c.expect.contains(field)) continue;
    json want = c.expect.at(field), got = names.at(mine);
    std::sort(want.begin(), want.end());
    std::sort(got.begin(), got.end());
    c.check.equal(field, want, got);
  }
}

void run_sharded_module(CaseContext& c) {
  const json& given = c.given;
  const bool sequence = given.at("module") == "EmbeddingCollection";
  const int64_t world = given.at("world_size"), local = given.at("local_world_size");
  if (world < 1 || world > 64 || local < 1 || world % local) {
    fail(Code::kInvalidArgument, "a world of ", world, " ranks, ", local, " per host, cannot be started");
  }
  const auto texts =
      run_in_ranks(given.at("world_size"), given.at("local_world_size"), 60,
                   [&](const RankEnvironment& where) { return run_rank(given, c.expect, c.kernel, where); });
  std::vector<json> ranks;
  for (const std::string& text : texts) ranks.push_back(json::parse(text));
  const bool has_state = !c.expect.contains("refused") && c.expect.value("steps_source", "") == "torchrec" &&
                         given.at("optimizer").at("name") != "EXACT_SGD";
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::string rank = "rank " + std::to_string(r);
    const auto check = sequence ? check_sequence : check_pooled;
    check(c.check, rank + ".unsharded_output", c.expect.at("unsharded_output").at(r), ranks[r][0]);
    for (size_t s = 0; s < ranks[r].size(); ++s) {
      const std::string at = "step " + std::to_string(s) + "." + rank;
      check(c.check, at + ".output", c.expect.at("steps").at(s).at("outputs").at(r), ranks[r][s]);
      check_rank_after_step(c.check, at, c.expect.at("steps").at(s), r, has_state, ranks[r][s]);
    }
  }
  check_names(c, ranks[0][0].at("names"));
}

}  // namespace

OpTable sharded_module_ops() { return {{"sharded_modules", run_sharded_module}}; }

}  // namespace tessera::cli
