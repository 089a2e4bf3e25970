#include "train/plan_versus_actual.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "planner/workload.h"

namespace tessera {
namespace {

constexpr double kMicro = 1e6;

// A table on one rank, in a step.
struct TableHere {
  double lookup_us = 0, update_us = 0, reads = 0;
  bool sampled = false;  // it was timed
};

// One rank's measurements, per step. All ranks have the same stages and tables, in the same order.
struct Measured {
  std::vector<double> stages_us;
  double in_host = 0, across_hosts = 0;  // bytes sent
  std::vector<TableHere> tables;
};

using TableIndex = std::map<std::string, size_t>;

// Numbers the tables of all collections by name.
TableIndex tables_of(ModelTrainer& trainer) {
  TableIndex index;
  for (const ShardedEmbeddings* collection : trainer.tables()) {
    for (const EmbeddingBagConfig& t : collection->tables()) index.emplace(t.name, index.size());
  }
  return index;
}

Measured measured_here(ModelTrainer& trainer, const TableIndex& tables, const ActualRun& actual) {
  const double steps = static_cast<double>(std::max<int64_t>(1, actual.steps));
  const bool warmed = !actual.warm_up.empty();
  const double counted = steps - static_cast<double>(warmed ? actual.warm_up_steps : 0);
  Measured out;
  for (size_t i = 0; i < actual.stages.size(); ++i)
    out.stages_us.push_back(kMicro * (actual.stages[i].second - (warmed ? actual.warm_up[i].second : 0)) / counted);
  const auto& [ids, rows, gradients, unused, wanted, sent] = actual.bytes;
  out.in_host = static_cast<double>(ids.in_host + rows.in_host + gradients.in_host) / steps;
  out.across_hosts = static_cast<double>(ids.across_hosts + rows.across_hosts + gradients.across_hosts) / steps;
  out.tables.resize(tables.size());
  for (const ShardedEmbeddings* collection : trainer.tables()) {
    for (const ShardTimes& t : collection->shard_times()) {
      TableHere& table = out.tables[tables.at(t.shard.table)];
      table.lookup_us += kMicro * t.lookup;
      table.update_us += kMicro * t.update;
      table.sampled = true;
    }
    for (const HeldShard& shard : collection->held_shards())
      out.tables[tables.at(shard.table)].reads +=
          static_cast<double>(collection->kernel_stats(shard).storage_reads) / steps;
  }
  return out;
}

// Collective.
std::vector<Measured> measured_everywhere(const ProcessGroup& group, const Measured& mine) {
  std::vector<double> values = mine.stages_us;
  values.insert(values.end(), {mine.in_host, mine.across_hosts});
  for (const TableHere& t : mine.tables)
    values.insert(values.end(), {t.lookup_us, t.update_us, t.reads, t.sampled ? 1.0 : 0.0});
  std::vector<Measured> out;
  for (const std::vector<double>& rank : group.all_gather(values, "measured")) {
    Measured m = mine;
    const double* at = rank.data();
    for (double& us : m.stages_us) us = *at++;
    m.in_host = *at++;
    m.across_hosts = *at++;
    for (TableHere& t : m.tables) {
      t = {at[0], at[1], at[2], at[3] != 0};
      at += 4;
    }
    out.push_back(std::move(m));
  }
  return out;
}

// Expected bytes of one rank and collection: ids, rows and gradients together.
HostBytes<double> expected_bytes(const ShardedEmbeddings& collection, bool sequence, const PlannerOptions& options,
                                 int rank) {
  TrafficInput input{.world_size = options.topology.world_size,
                     .local_world_size = options.topology.local_world_size,
                     .batch = static_cast<double>(options.batch_size),
                     .wire = wire_bytes_of(collection.group()),
                     .joins = collection.group().joins()};
  if (options.topology.accelerator()) input.joins.rows = JoinExchanges::kNever;
  input.sequence = sequence;
  for (const EmbeddingBagConfig& t : collection.tables()) {
    const auto known = options.constraints.find(t.name);
    if (known == options.constraints.end()) continue;
    input.distinct[t.name] = distinct_share(t, sequence, known->second, input.batch);
    for (size_t f = 0; f < t.feature_names.size() && f < known->second.pooling_factors.size(); ++f) {
      input.ids_per_bag[t.feature_names[f]] = known->second.pooling_factors[f];
    }
  }
  const ExchangeBytes<double> bytes = expected_traffic(collection.tables(), collection.plan(), input, rank);
  HostBytes<double> sum = bytes.ids;
  sum += bytes.rows;
  return sum += bytes.gradients;
}

PlanVersusActual::Rank rank_of(const StageSeconds& predicted, const Stages& stages, const Measured& measured,
                               const HostBytes<double>& bytes) {
  PlanVersusActual::Rank out;
  for (const auto& [name, seconds] : predicted) {
    const auto stage =
        std::find_if(stages.begin(), stages.end(), [&n = name](const auto& known) { return known.first == n; });
    const double us = stage == stages.end() ? 0.0 : measured.stages_us[static_cast<size_t>(stage - stages.begin())];
    out.stages_us.emplace_back(name, PlannedFigure{kMicro * seconds, us});
    out.us.predicted += kMicro * seconds;
    out.us.measured += us;
  }
  out.in_host = {bytes.in_host, measured.in_host};
  out.across_hosts = {bytes.across_hosts, measured.across_hosts};
  return out;
}

const ParameterSharding& sharding_of(const ShardingPlan& plan, const std::string& table) {
  for (const auto& [path, tables] : plan.modules) {
    if (tables.contains(table)) return tables.at(table);
  }
  fail(Code::kInternal, "the plan has no table \"", table, '"');
}

std::vector<PlanVersusActual::Table> compared_tables(const StepPrediction& predicted, const ShardingPlan& plan,
                                                     const TableIndex& tables, const std::vector<Measured>& measured) {
  std::vector<PlanVersusActual::Table> out;
  for (const TablePrediction& t : predicted.tables) {
    const ParameterSharding& sharding = sharding_of(plan, t.name);
    for (size_t rank = 0; rank < measured.size(); ++rank) {
      const bool held = std::any_of(sharding.shards.begin(), sharding.shards.end(), [&](const ShardMetadata& s) {
        return static_cast<size_t>(s.rank) == rank && s.rows > 0;
      });
      if (!held) continue;
      const TableHere& here = measured[rank].tables[tables.at(t.name)];
      const auto measured_us = [&](double us) { return here.sampled ? us : std::nan(""); };
      PlanVersusActual::Table& line = out.emplace_back();
      line.table = t.name;
      line.rank = static_cast<int>(rank);
      line.sharding_type = sharding.sharding_type;
      line.lookup_us = {kMicro * t.lookup[rank], measured_us(here.lookup_us)};
      line.update_us = {kMicro * t.update[rank], measured_us(here.update_us)};
      line.exchanged_bytes = t.bytes[rank];
      if (t.reads[rank] + here.reads > 0) line.disk_reads = PlannedFigure{t.reads[rank], here.reads};
    }
  }
  return out;
}

}  // namespace

PlanVersusActual plan_versus_actual(const Runtime& runtime, ModelTrainer& trainer, const PlannerOptions& options,
                                    const DenseWork& dense, const ActualRun& actual) {
  const ProcessGroup& group = trainer.parallel().group();
  const TableIndex tables = tables_of(trainer);
  const std::vector<Measured> measured = measured_everywhere(group, measured_here(trainer, tables, actual));
  PlanVersusActual out;
  if (group.rank() != 0) return out;
  using Kind = PlannerModule::Kind;
  const auto collections = trainer.parallel().sharded();
  std::vector<PlannerModule> modules;
  for (const auto& [path, c] : collections) {
    const Kind kind = path == kSequencePath ? Kind::kEmbeddingCollection : Kind::kEmbeddingBagCollection;
    modules.push_back({path, kind, c->tables(), 0});
  }
  const StepPrediction predicted = predict_step(runtime, options, modules, trainer.parallel().plan(), dense);
  out.figures = options.machine && options.machine->measured ? "measured: " + options.machine->name : "typical";
  out.step_us.predicted = kMicro * predicted.seconds;
  for (size_t r = 0; r < measured.size(); ++r) {
    HostBytes<double> bytes;
    for (const auto& [path, c] : collections)
      bytes += expected_bytes(*c, path == kSequencePath, options, static_cast<int>(r));
    out.ranks.push_back(rank_of(predicted.stages[r], actual.stages, measured[r], bytes));
    out.step_us.measured = std::max(out.step_us.measured, out.ranks.back().us.measured);
  }
  out.sampled_steps = trainer.embeddings().sampled_steps();
  out.tables = compared_tables(predicted, trainer.parallel().plan(), tables, measured);
  return out;
}

}  // namespace tessera
