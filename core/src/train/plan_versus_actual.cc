#include "train/plan_versus_actual.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "config/json.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

constexpr double kMicro = 1e6;

// One path of data, such as "exchange ids", by link.
struct Path {
  const char* name;
  double HostBytes<double>::*predicted;
  int64_t HostBytes<int64_t>::*counted;
};
constexpr Path kPaths[] = {{"in_host", &HostBytes<double>::in_host, &HostBytes<int64_t>::in_host},
                           {"across_hosts", &HostBytes<double>::across_hosts, &HostBytes<int64_t>::across_hosts}};

json pair_of(double predicted, double measured) { return {{"predicted", predicted}, {"measured", measured}}; }

// This rank's measurements, per step.
json measured_here(ModelTrainer& trainer, const ActualRun& actual) {
  const double steps = static_cast<double>(std::max<int64_t>(1, actual.steps));
  const bool warmed = !actual.warm_up.empty();
  const double counted = steps - static_cast<double>(warmed ? actual.warm_up_steps : 0);
  json out;
  for (size_t i = 0; i < actual.stages.size(); ++i) {
    const auto& [name, seconds] = actual.stages[i];
    out["stages"][name] = kMicro * (seconds - (warmed ? actual.warm_up[i].second : 0)) / counted;
  }
  for (const Path& path : kPaths) {
    out["bytes"][path.name] = static_cast<double>(actual.bytes.ids.*(path.counted) + actual.bytes.rows.*(path.counted) +
                                                  actual.bytes.gradients.*(path.counted)) /
                              steps;
  }
  std::map<std::string, std::pair<double, double>> tables;
  for (const ShardedEmbeddings* collection : trainer.tables()) {
    for (const ShardTimes& t : collection->shard_times()) {
      auto& [lookup, update] = tables[t.shard.table];
      lookup += kMicro * t.lookup;
      update += kMicro * t.update;
    }
  }
  out["tables"] = json::object();
  for (const auto& [name, times] : tables) out["tables"][name] = {times.first, times.second};
  out["reads"] = json::object();
  for (const ShardedEmbeddings* collection : trainer.tables()) {
    for (const HeldShard& shard : collection->held_shards()) {
      const double reads = static_cast<double>(collection->kernel_stats(shard).storage_reads) / steps;
      if (reads > 0) out["reads"][shard.table] = out["reads"].value(shard.table, 0.0) + reads;
    }
  }
  return out;
}

// Expected bytes of one rank and collection: ids, rows and gradients together.
HostBytes<double> expected_bytes(const ShardedEmbeddings& collection, bool sequence, const PlannerOptions& options,
                                 int rank) {
  TrafficInput input;
  input.world_size = options.topology.world_size;
  input.local_world_size = options.topology.local_world_size;
  input.batch = static_cast<double>(options.batch_size);
  input.wire = wire_bytes_of(collection.group());
  input.sequence = sequence;
  for (const EmbeddingBagConfig& t : collection.tables()) {
    const auto known = options.constraints.find(t.name);
    if (known == options.constraints.end()) continue;
    for (size_t f = 0; f < t.feature_names.size() && f < known->second.pooling_factors.size(); ++f) {
      input.ids_per_bag[t.feature_names[f]] = known->second.pooling_factors[f];
    }
  }
  const ExchangeBytes<double> bytes = expected_traffic(collection.tables(), collection.plan(), input, rank);
  HostBytes<double> sum = bytes.ids;
  sum += bytes.rows;
  return sum += bytes.gradients;
}

json rank_line(const StageSeconds& predicted, const json& measured, const HostBytes<double>& bytes) {
  json stages;
  double expected = 0, actual = 0;
  for (const auto& [name, seconds] : predicted) {
    const double us = measured["stages"].value(name, 0.0);
    stages[name] = pair_of(kMicro * seconds, us);
    expected += kMicro * seconds;
    actual += us;
  }
  json line{{"us", pair_of(expected, actual)}, {"stages_us", std::move(stages)}};
  for (const Path& path : kPaths) {
    line["bytes"][path.name] = pair_of(bytes.*(path.predicted), measured["bytes"][path.name].get<double>());
  }
  return line;
}

const ParameterSharding& sharding_of(const ShardingPlan& plan, const std::string& table) {
  for (const auto& [path, tables] : plan.modules) {
    if (tables.contains(table)) return tables.at(table);
  }
  fail(Code::kInternal, "the plan has no table \"", table, '"');
}

void add_tables(const StepPrediction& predicted, const ShardingPlan& plan, const std::vector<json>& measured,
                json* out) {
  for (const TablePrediction& t : predicted.tables) {
    const ParameterSharding& sharding = sharding_of(plan, t.name);
    for (size_t rank = 0; rank < measured.size(); ++rank) {
      const bool held = std::any_of(sharding.shards.begin(), sharding.shards.end(), [&](const ShardMetadata& s) {
        return static_cast<size_t>(s.rank) == rank && s.rows > 0;
      });
      if (!held) continue;
      json line{{"table", t.name}, {"rank", rank}, {"sharding_type", sharding.sharding_type}};
      const auto times = measured[rank]["tables"].find(t.name);
      const bool sampled = times != measured[rank]["tables"].end();
      line["lookup_us"] = {{"predicted", kMicro * t.lookup[rank]}, {"measured", sampled ? (*times)[0] : json()}};
      line["update_us"] = {{"predicted", kMicro * t.update[rank]}, {"measured", sampled ? (*times)[1] : json()}};
      line["exchanged_bytes"] = t.bytes[rank];
      const double reads = measured[rank]["reads"].value(t.name, 0.0);
      if (t.reads[rank] + reads > 0) line["disk_reads"] = pair_of(t.reads[rank], reads);
      out->push_back(std::move(line));
    }
  }
}

}  // namespace

json plan_versus_actual(const Runtime& runtime, ModelTrainer& trainer, const PlannerOptions& options,
                        const DenseWork& dense, const ActualRun& actual) {
  const auto texts = trainer.parallel().group().all_gather_text(measured_here(trainer, actual).dump(), "measured");
  if (trainer.parallel().group().rank() != 0) return {};
  std::vector<json> measured;
  for (const std::string& text : texts)
    measured.push_back(config::parse_json(text, {"a rank's measurements", Code::kDataLoss}));
  using Kind = PlannerModule::Kind;
  const auto collections = trainer.parallel().sharded();
  std::vector<PlannerModule> modules;
  for (const auto& [path, c] : collections) {
    const Kind kind = path == kSequencePath ? Kind::kEmbeddingCollection : Kind::kEmbeddingBagCollection;
    modules.push_back({path, kind, c->tables(), 0});
  }
  const StepPrediction predicted = predict_step(runtime, options, modules, trainer.parallel().plan(), dense);
  json out;
  out["figures"] = options.machine && options.machine->measured ? "measured: " + options.machine->name : "typical";
  double step = 0;
  json ranks = json::array();
  for (size_t r = 0; r < measured.size(); ++r) {
    HostBytes<double> bytes;
    for (const auto& [path, c] : collections)
      bytes += expected_bytes(*c, path == kSequencePath, options, static_cast<int>(r));
    ranks.push_back(rank_line(predicted.stages[r], measured[r], bytes));
    step = std::max(step, ranks.back()["us"]["measured"].get<double>());
  }
  out["step_us"] = pair_of(kMicro * predicted.seconds, step);
  out["ranks"] = std::move(ranks);
  out["sampled_steps"] = trainer.embeddings().sampled_steps();
  out["tables"] = json::array();
  add_tables(predicted, trainer.parallel().plan(), measured, &out["tables"]);
  return out;
}

}  // namespace tessera
