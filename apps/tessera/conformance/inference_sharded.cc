// Area "inference", sharded_quant_ebc (tests/conformance/QUANTIZATION.md, section 6): every case runs in as many
// processes as it has ranks. The whole batch comes once from every rank, and once only from rank 0, as in serving.
#include <algorithm>

#include "conformance/inference.h"
#include "spawn.h"
#include "tessera/process_group.h"
#include "tessera/quantization.h"
#include "tessera/sharding.h"

namespace tessera::cli {
namespace {

constexpr int64_t kTableAlignment = 128;
constexpr int64_t kUnsplitAlignment = 16;
constexpr double kRankTimeout = 60;

Topology flat_topology(const json& given) {
  return Topology::of(given.at("world_size"), given.at("world_size"), "cpu");
}

// Tables as the planner sees them. If a state dict does not split scale and bias from the codes, TorchRec's planner
// takes the stored bytes of a row for its columns.
std::vector<EmbeddingBagConfig> planned_tables(const json& given, const std::vector<QuantizedTable>& tables) {
  std::vector<EmbeddingBagConfig> configs = configs_of(tables);
  if (given.value("quant_state_dict_split_scale_bias", true)) return configs;
  for (EmbeddingBagConfig& t : configs) {
    t.embedding_dim = sdk::row_bytes(*t.row_format, t.embedding_dim, kUnsplitAlignment);
  }
  return configs;
}

ShardingRequest request_of(const json& given) {
  return {.sharding_type = given.at("sharding_type"),
          .compute_kernel = "quant",
          .min_partition = given.at("min_partition")};
}

// Assigns tables in order, each shard to the rank with the fewest columns so far.
EmbeddingModuleShardingPlan plan_of(const Runtime& runtime, const json& given,
                                    const std::vector<EmbeddingBagConfig>& tables) {
  const Topology topology = flat_topology(given);
  std::vector<int64_t> columns(static_cast<size_t>(topology.world_size));
  EmbeddingModuleShardingPlan plan;
  for (const EmbeddingBagConfig& table : tables) {
    ParameterSharding sharding = make_sharding(runtime, table, request_of(given), topology);
    if (sharding.combine == ParameterSharding::Combine::kConcat) {
      for (ShardMetadata& shard : sharding.shards) {
        const auto least = std::min_element(columns.begin(), columns.end());
        shard.rank = static_cast<int>(least - columns.begin());
        *least += shard.cols;
      }
    }
    plan.add(table.name, std::move(sharding));
  }
  return plan;
}

json described(const EmbeddingModuleShardingPlan& plan) {
  json out = json::object();
  for (const auto& [table, sharding] : plan.tables()) {
    json shards = json::array();
    for (const ShardMetadata& s : sharding.shards) {
      shards.push_back({{"offsets", {s.row, s.col}}, {"sizes", {s.rows, s.cols}}, {"rank", s.rank}});
    }
    out[table] = {{"sharding_type", sharding.sharding_type},
                  {"compute_kernel", sharding.compute_kernel},
                  {"ranks", sharding.ranks()},
                  {"shards", std::move(shards)}};
  }
  return out;
}

// The shards of each rank, including empty ones: tables in order, left to right.
void check_shards(CaseContext& c, const EmbeddingModuleShardingPlan& plan, const std::vector<QuantizedTable>& tables) {
  for (const json& want : c.expect.at("shards")) {
    const std::string at = str_cat("shards of rank ", want.at("rank").get<int>());
    json specs = json::array();
    std::vector<Tensor> rows;
    for (const QuantizedTable& table : tables) {
      for (const ShardMetadata& shard : plan.at(table.config.name).shards) {
        if (shard.rank != want.at("rank").get<int>()) continue;
        specs.push_back({table.config.name, shard.rows, shard.cols});
        rows.push_back(shard_rows(table, shard));
      }
    }
    c.check.equal(at + ".specs", want.at("specs"), specs);
    const TableImage image = image_of(rows, kTableAlignment);
    check_bytes(c.check, at + ".weights_host", want.at("weights_host"), image.bytes.data(),
                static_cast<int64_t>(image.bytes.size()));
  }
}

KeyedJaggedTensor nothing_like(const KeyedJaggedTensor& batch) {
  return KeyedJaggedTensor::from_lengths_sync(batch.keys(), Tensor::zeros({0}, batch.values().dtype()),
                                              Tensor::zeros({0}, DType::kInt32),
                                              batch.weights_or_null().defined() ? Tensor::zeros({0}) : Tensor());
}

json described(const KeyedTensor& output) {
  return {{"keys", output.keys()},
          {"lengths", output.length_per_key()},
          {"shape", output.values().shape()},
          {"data", output.values().to_vector<float>()}};
}

KeyedTensor keyed_from(const json& text) {
  return KeyedTensor(text.at("keys").get<std::vector<std::string>>(), text.at("lengths").get<std::vector<int64_t>>(),
                     Tensor::from<float>(text.at("data").get<std::vector<float>>())
                         .reshape(text.at("shape").get<std::vector<int64_t>>()));
}

std::string run_rank(const CaseContext& c, const RankEnvironment& where) {
  const Runtime runtime;  // one runtime per process
  const CaseContext mine{runtime, c.kernel, c.device, c.given, c.expect, c.check, c.tolerance};
  const auto group = ProcessGroup::connect(runtime, where);
  const std::vector<QuantizedTable> tables = quantized_tables(mine, 1);
  ShardedModuleOptions options{.kernel = c.kernel, .is_weighted = c.given.at("is_weighted")};
  auto module = QuantEmbeddingBagCollectionSharder(runtime, options)
                    .shard(tables, plan_of(runtime, c.given, configs_of(tables)), group);
  const KeyedJaggedTensor batch = kjt_from(c.given.at("features"));
  const json together = described(module.forward(batch, false, false).wait().values);
  const auto alone = module.forward(where.rank == 0 ? batch : nothing_like(batch), false, false).wait();
  group->barrier();
  return json{together, described(alone.values)}.dump();
}

}  // namespace

void sharded_inference_op(CaseContext& c) {
  const int64_t world = c.given.at("world_size");
  if (world < 1 || world > 64) fail(Code::kInvalidArgument, "a world of ", world, " ranks cannot be started");
  const std::vector<QuantizedTable> tables = quantized_tables(c, 1);
  const std::vector<EmbeddingBagConfig> planned = planned_tables(c.given, tables);
  const EmbeddingModuleShardingPlan plan = plan_of(c.runtime, c.given, planned);
  c.check.equal("plan", c.expect.at("plan"), described(plan));
  if (!c.expect.contains("values")) {  // only the plan is checked: how it divides the output's width
    json lengths = json::array();
    int64_t columns = 0;
    for (const EmbeddingBagConfig& t : planned) {
      for (size_t f = 0; f < t.feature_names.size(); ++f) {
        lengths.push_back(t.embedding_dim);
        columns += t.embedding_dim;
      }
    }
    c.check.equal("length_per_key", c.expect.at("length_per_key"), lengths);
    c.check.equal("output_columns", c.expect.at("output_columns"), columns);
    return;
  }
  check_shards(c, plan, tables);
  const auto texts = run_in_ranks(static_cast<int>(world), static_cast<int>(world), kRankTimeout,
                                  [&](const RankEnvironment& where) { return run_rank(c, where); });
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const json outputs = json::parse(texts[rank]);
    check_keyed(c, keyed_from(outputs[0]));
    if (rank == 0) check_keyed(c, keyed_from(outputs[1]));
  }
}

}  // namespace tessera::cli
