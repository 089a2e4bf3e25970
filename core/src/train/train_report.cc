#include "train/train_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "planner/workload.h"
#include "train/plan_versus_actual.h"
#include "train/traffic_report.h"

namespace tessera {
namespace {

// Reduces the values over all ranks.
std::vector<double> reduced(const ProcessGroup& group, const std::vector<double>& mine, ReduceOp op,
                            const char* label) {
  if (group.world_size() == 1) return mine;
  const Tensor all = Tensor::from(mine);
  group.all_reduce(all, op, label).wait();
  return all.to_vector<double>();
}

// Turns a run's seconds into microseconds per step.
double per_step(const RunResult& run, double seconds) {
  return 1e6 * seconds / static_cast<double>(std::max<int64_t>(1, run.trained.steps_done));
}

std::vector<StageTime> stages_of(const ProcessGroup& group, const RunResult& run) {
  Stages stages = run.all.stages;
  stages.insert(stages.begin(), {"read", run.read_s});
  std::vector<double> mine;
  for (const auto& [name, seconds] : stages) mine.push_back(seconds);
  const std::vector<double> largest = reduced(group, mine, ReduceOp::kMax, "stages");
  std::vector<StageTime> out;
  for (size_t i = 0; i < stages.size(); ++i)
    out.push_back({stages[i].first, per_step(run, mine[i]), per_step(run, largest[i])});
  return out;
}

// The part of the input work that overlapped with earlier steps.
PipelineTimes pipeline_of(const RunResult& run) {
  double work = run.read_s;
  for (const auto& [name, seconds] : run.all.stages) {
    if (name == ModelTrainer::kRouteStage || name == ModelTrainer::kExchangeIdsStage) work += seconds;
  }
  return {per_step(run, work), per_step(run, run.waited_s), per_step(run, std::max(0.0, work - run.waited_s))};
}

// The plan's bytes are for a whole batch with the average number of ids per bag that was read, or that is drawn.
void add_traffic(const JobSetup& job, const RunResult& run, RunReport& out) {
  const ProcessGroup& group = *job.group;
  const std::vector<double> ids = reduced(group, run.ids, ReduceOp::kSum, "ids");
  TrafficInput input{.world_size = group.world_size(),
                     .local_world_size = group.local_world_size(),
                     .batch = static_cast<double>(job.config.data.batch) / group.world_size(),
                     .wire = wire_bytes_of(group),
                     .joins = group.joins()};
  if (job.options.device) input.joins.rows = JoinExchanges::kNever;
  for (size_t c = 0; c < ids.size(); ++c) {
    const double bags = static_cast<double>(std::max<int64_t>(1, run.samples));
    input.ids_per_bag[job.data.data.columns[c].name] = ids[c] / bags;
  }
  for (const TableConfig& table : job.data.tables) {
    const std::vector<double>& known = job.model.planner.constraints.at(table.name).pooling_factors;
    for (size_t f = 0; f < table.features.size() && f < known.size(); ++f)
      input.ids_per_bag.emplace(table.features[f], known[f]);  // of those that the data do not have
  }
  ExchangeBytes<double> planned;
  for (const auto& [path, tables] : job.trainer().parallel().sharded()) {
    input.sequence = path == kSequencePath;
    for (const EmbeddingBagConfig& t : tables->tables())
      input.distinct[t.name] = distinct_share(t, input.sequence, job.model.planner.constraints.at(t.name), input.batch);
    planned += expected_traffic(tables->tables(), tables->plan(), input, group.rank());
  }
  report_traffic(group, run.all.sent, static_cast<double>(run.trained.steps_done), planned, out);
}

// One table's counts as values that ranks add up.
struct Counts {
  enum At { kRows, kLookups, kHits, kEvictions, kBytes, kReads, kWrites, kReadUs, kWaitUs, kCached, kSize };
  std::array<double, kSize> values{};  // kCached: ranks with a cache in front of rows on a disk

  void add(const ShardedEmbeddings& embeddings, const HeldShard& shard, int rank) {
    const tsr_kernel_stats s = embeddings.kernel_stats(shard);
    values[kBytes] += static_cast<double>(s.weight_bytes + s.state_bytes + s.other_bytes);
    values[kReads] += static_cast<double>(s.storage_reads);
    values[kWrites] += static_cast<double>(s.storage_writes);
    values[kReadUs] += 1e6 * s.read_seconds;
    values[kWaitUs] += 1e6 * s.wait_seconds;
    values[kCached] += s.hits < s.lookups && !embeddings.rows_on_demand(shard) ? 1 : 0;
    if (shard.where.col > 0) return;  // other columns of the same rows
    const bool counted = rank > 0 && embeddings.plan().at(shard.table).is_replicated(shard.shard);
    values[kRows] += counted ? 0 : static_cast<double>(s.rows_in_use);
    values[kLookups] += static_cast<double>(s.lookups);
    values[kHits] += static_cast<double>(s.hits);
    values[kEvictions] += static_cast<double>(s.evictions);
  }
};

TableCounts counts_from(const std::string& table, const double* sums) {
  const auto count = [&](Counts::At at) { return static_cast<int64_t>(sums[at]); };
  TableCounts out{table,
                  count(Counts::kRows),
                  count(Counts::kLookups),
                  count(Counts::kHits),
                  count(Counts::kEvictions),
                  count(Counts::kBytes),
                  std::nullopt};
  if (sums[Counts::kReads] + sums[Counts::kWrites] + sums[Counts::kCached] > 0)
    out.disk = TableCounts::Disk{count(Counts::kReads), count(Counts::kWrites), count(Counts::kReadUs),
                                 count(Counts::kWaitUs)};
  return out;
}

void add_tables(const ShardedEmbeddings& embeddings, const ProcessGroup& group, std::vector<TableCounts>& out) {
  const std::vector<EmbeddingBagConfig>& tables = embeddings.tables();
  std::map<std::string, Counts> counts;
  for (const HeldShard& shard : embeddings.held_shards()) counts[shard.table].add(embeddings, shard, group.rank());
  std::vector<double> mine;
  for (const EmbeddingBagConfig& t : tables) {
    const Counts& here = counts[t.name];  // zeros if this rank has no shard of the table
    mine.insert(mine.end(), here.values.begin(), here.values.end());
  }
  const std::vector<double> sums = reduced(group, mine, ReduceOp::kSum, "tables");
  for (size_t t = 0; t < tables.size(); ++t) out.push_back(counts_from(tables[t].name, &sums[t * Counts::kSize]));
}

}  // namespace

std::vector<LayerChoice> layers_of(const JobSetup& job) {
  const ModelTrainer& trainer = job.trainer();
  const int32_t device =
      trainer.dense_on_device() ? static_cast<int32_t>(job.options.device->device().type) : int32_t{kDLCPU};
  const std::vector<LayerChoice> all = layer_choices(job.runtime, device);
  std::vector<LayerChoice> out;
  for (const auto& [layer, component] : trainer.layers().components()) {
    const auto known =
        std::find_if(all.begin(), all.end(), [&layer = layer](const LayerChoice& l) { return l.layer == layer; });
    out.push_back({layer, component, known == all.end() ? std::vector<std::string>() : known->instead_of});
  }
  return out;
}

RunReport run_report(const JobSetup& job, const RunResult& run, TestResult test) {
  const ProcessGroup& group = *job.group;
  ModelTrainer& trainer = job.trainer();
  const Dataset& data = job.data.data;
  const int64_t steps = run.trained.steps_done;
  RunReport out;
  out.model = job.config.model.type;
  out.data_name = data.name;
  out.train_rows = data.train_rows();
  out.test_rows = data.test_rows();
  out.test_split = data.test_split;
  out.world_size = group.world_size();
  out.backend = group.backend();
  out.device = job.options.device ? job.options.device->id() : "cpu";
  out.dense_precision = trainer.dense_precision().type;
  out.why_float32 = trainer.dense_precision().why;
  out.dense_device = trainer.dense_on_device() ? out.device : "cpu";
  out.why_in_host_memory = trainer.why_in_host_memory();
  out.layers = layers_of(job);
  out.steps = steps;
  out.first_step = job.start.first_step;
  out.start = job.start.notes;
  out.samples = run.samples;
  out.seconds = run.seconds;
  for (const TrainValidation& v : run.trained.validations) out.seconds -= v.seconds;
  out.samples_per_s = out.seconds > 0 ? static_cast<double>(run.samples) / out.seconds : 0;
  const double sum = std::accumulate(run.losses.begin(), run.losses.end(), 0.0);
  out.loss = run.losses.empty() ? std::nan("") : sum / static_cast<double>(run.losses.size());
  out.training_metrics = run.training;
  out.arrived = run.arrived;
  out.test = std::move(test);
  out.validations = run.trained.validations;
  out.stages = stages_of(group, run);
  out.seconds_to_first_step = run.first_step_seconds;
  if (run.ahead) out.pipeline = pipeline_of(run);
  if (group.world_size() > 1) add_traffic(job, run, out);
  out.checkpoints = run.checkpoints;
  out.publications = run.publications;
  out.plan_versus_actual =
      plan_versus_actual(job.runtime, trainer, job.model.planner, job.model.dense,
                         {run.warm.stages, run.all.stages, steps, warm_up_steps(steps), run.all.sent});
  for (const ShardedEmbeddings* collection : trainer.tables()) add_tables(*collection, group, out.tables);
  int64_t dropped = 0;
  for (const ShardedEmbeddings* collection : trainer.tables()) dropped += collection->dropped_ids();
  out.dropped_ids =
      static_cast<int64_t>(reduced(group, {static_cast<double>(dropped)}, ReduceOp::kSum, "counts").front());
  out.plan = trainer.parallel().plan();
  out.losses = run.losses;
  out.config = to_toml(job.config);
  return out;
}

}  // namespace tessera
