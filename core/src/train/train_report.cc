#include "train/train_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "config/json.h"
#include "train/arriving_batches.h"
#include "train/job_checkpoints.h"
#include "train/job_publisher.h"
#include "train/metrics_log.h"
#include "train/plan_versus_actual.h"
#include "train/traffic_report.h"

namespace tessera {

int64_t warm_up_steps(int64_t steps) { return std::min<int64_t>(50, steps / 5); }

double TrainReport::per_step(double seconds) const {
  return 1e6 * seconds / static_cast<double>(std::max<int64_t>(1, job_.steps_done()));
}

double TrainReport::summed(double value) const {
  const Tensor t = Tensor::scalar(value);
  if (job_.group_->world_size() > 1) job_.group_->all_reduce(t, ReduceOp::kSum, "counts").wait();
  return t.item();
}

TrainReport::Json TrainReport::stages() const {
  Stages stages = job_.trained_.stages;
  stages.insert(stages.begin(), {"read", job_.loop_->read_s()});
  std::vector<double> mine;
  for (const auto& [name, seconds] : stages) mine.push_back(seconds);
  const Tensor largest = Tensor::from(mine);
  if (job_.group_->world_size() > 1) job_.group_->all_reduce(largest, ReduceOp::kMax, "stages").wait();
  Json out = Json::object();
  for (size_t i = 0; i < stages.size(); ++i) {
    out[stages[i].first] = {{"us_per_step", per_step(mine[i])},
                            {"largest_us_per_step", per_step(largest.span<double>()[i])}};
  }
  return out;
}

// The part of the input work that overlapped with earlier steps.
TrainReport::Json TrainReport::pipeline() const {
  double work = job_.loop_->read_s();
  for (const auto& [name, seconds] : job_.trained_.stages) {
    if (name == ModelTrainer::kRouteStage || name == ModelTrainer::kExchangeIdsStage) work += seconds;
  }
  const double waited = job_.loop_->waited_s();
  return {{"work_us_per_step", per_step(work)},
          {"waited_us_per_step", per_step(waited)},
          {"hidden_us_per_step", per_step(std::max(0.0, work - waited))}};
}

// The plan's bytes are for a whole batch with the average number of ids per bag that was read.
TrainReport::Json TrainReport::traffic() {
  const ProcessGroup& group = *job_.group_;
  const Tensor ids = Tensor::from(job_.ids_);
  group.all_reduce(ids, ReduceOp::kSum, "ids").wait();
  TrafficInput input;
  input.world_size = group.world_size();
  input.local_world_size = group.local_world_size();
  input.batch = static_cast<double>(job_.config_.data.batch) / group.world_size();
  input.wire = wire_bytes_of(group);
  for (size_t c = 0; c < job_.ids_.size(); ++c) {
    const double bags = static_cast<double>(std::max<int64_t>(1, job_.loop_->samples()));
    input.ids_per_bag[job_.data_.columns[c].name] = ids.data<double>()[c] / bags;
  }
  ExchangeBytes<double> planned;
  for (const auto& [path, tables] : job_.trainer_->parallel().sharded()) {
    input.sequence = path == kSequencePath;
    planned += expected_traffic(tables->tables(), tables->plan(), input, group.rank());
  }
  return traffic_report(group, job_.trained_.sent, static_cast<double>(job_.steps_done()), planned);
}

TrainReport::Json TrainReport::validations() const {
  Json out = Json::array();
  for (const TrainValidation& v : job_.validations_) {
    Json one = {{"step", v.step}, {"best", v.best}};
    one.update(metrics_json(v.metrics));
    one["seconds"] = v.seconds;
    out.push_back(std::move(one));
  }
  return out;
}

TrainReport::Json TrainReport::tables() const {
  Json out = Json::object();
  for (const ShardedEmbeddings* collection : job_.trainer_->tables()) out.update(tables_of(*collection));
  return out;
}

TrainReport::Json TrainReport::tables_of(const ShardedEmbeddings& embeddings) const {
  static constexpr const char* kFigures[] = {"rows_in_use",   "lookups",        "hits",    "evictions", "bytes",
                                             "storage_reads", "storage_writes", "read_us", "wait_us"};
  constexpr size_t kOfAll = 5;  // the others are only of tables on a disk
  // the last one counts ranks with a cache in front of rows on a disk
  constexpr size_t kSums = std::size(kFigures) + 1;
  const std::vector<EmbeddingBagConfig>& tables = embeddings.tables();
  std::vector<double> sums(tables.size() * kSums);
  for (const HeldShard& shard : embeddings.held_shards()) {
    const auto table = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.name == shard.table; });
    double* const sum = sums.data() + static_cast<size_t>(table - tables.begin()) * kSums;
    const tsr_kernel_stats s = embeddings.kernel_stats(shard);
    sum[4] += static_cast<double>(s.weight_bytes + s.state_bytes + s.other_bytes);
    sum[5] += static_cast<double>(s.storage_reads);
    sum[6] += static_cast<double>(s.storage_writes);
    sum[7] += 1e6 * s.read_seconds;
    sum[8] += 1e6 * s.wait_seconds;
    sum[9] += s.hits < s.lookups && !embeddings.rows_on_demand(shard) ? 1 : 0;
    if (shard.where.col > 0) continue;  // other columns of the same rows
    const bool counted = job_.group_->rank() > 0 && embeddings.plan().at(shard.table).is_replicated(shard.shard);
    sum[0] += counted ? 0 : static_cast<double>(s.rows_in_use);
    sum[1] += static_cast<double>(s.lookups);
    sum[2] += static_cast<double>(s.hits);
    sum[3] += static_cast<double>(s.evictions);
  }
  const Tensor all = Tensor::from(sums);
  if (job_.group_->world_size() > 1) job_.group_->all_reduce(all, ReduceOp::kSum, "tables").wait();
  Json out = Json::object();
  for (size_t t = 0; t < tables.size(); ++t) {
    const std::span<const double> of_table = all.span<double>().subspan(t * kSums, kSums);
    const bool on_disk = of_table[5] + of_table[6] + of_table[9] > 0;
    for (size_t k = 0; k < (on_disk ? std::size(kFigures) : kOfAll); ++k)
      out[tables[t].name][kFigures[k]] = static_cast<int64_t>(of_table[k]);
  }
  return out;
}

TrainReport::Json TrainReport::layers() {
  Json out = Json::object();
  for (const LayerChoice& l : job_.layers()) out[l.layer] = {{"component", l.component}, {"instead_of", l.instead_of}};
  return out;
}

std::string TrainReport::text(const MetricValues& metrics) {
  TESSERA_CHECK(job_.loop_, "a report is of a job that has trained");
  const TrainLoop& loop = *job_.loop_;
  const std::vector<double>& losses = loop.losses();
  const std::string device = job_.options_.device ? job_.options_.device->id() : "cpu";
  Json out;
  out["model"] = job_.config_.model.type;
  out["data"] = {
      {"name", job_.data_.name}, {"train_rows", job_.data_.train_rows()}, {"test_rows", job_.data_.test_rows()}};
  if (!job_.data_.test_split.empty()) out["data"]["test_split"] = job_.data_.test_split;
  out["world_size"] = job_.group_->world_size();
  out["backend"] = job_.group_->backend();
  out["device"] = device;
  out["dense_device"] = job_.trainer_->dense_on_device() ? device : "cpu";
  if (const std::string& why = job_.trainer_->why_in_host_memory(); !why.empty()) out["why_in_host_memory"] = why;
  out["layers"] = layers();
  out["steps"] = job_.steps_done();
  out["first_step"] = job_.first_step_;
  if (!job_.start_notes_.empty()) out["start"] = job_.start_notes_;
  const double sum = std::accumulate(losses.begin(), losses.end(), 0.0);
  double seconds = loop.seconds();
  for (const TrainValidation& v : job_.validations_) seconds -= v.seconds;
  out["train"] = {{"samples", loop.samples()},
                  {"seconds", seconds},
                  {"samples_per_s", seconds > 0 ? static_cast<double>(loop.samples()) / seconds : 0},
                  {"loss", losses.empty() ? Json() : Json(sum / static_cast<double>(losses.size()))}};
  for (const auto& [name, value] : job_.training_) out["train"]["metrics"][name] = value;
  if (job_.arriving_) out["arrived"] = job_.arriving_->report();
  out["test"] = metrics_json(metrics);
  out["test"]["seconds"] = job_.evaluate_seconds_;
  out["test_step"] = job_.tested_step();
  if (!job_.validations_.empty()) out["validations"] = validations();
  out["stages"] = stages();
  out["seconds_to_first_step"] = job_.first_step_seconds_;
  if (job_.ahead_) out["pipeline"] = pipeline();
  if (job_.group_->world_size() > 1) out["bytes_per_step"] = traffic();
  if (const JobCheckpoints* c = job_.checkpoints_.get()) {
    out["checkpoints"] = {{"saved", c->saved()},           {"saved_changes", c->saved_changes()},
                          {"failed", c->failed()},         {"beside_training", c->beside()},
                          {"copy_bytes", c->copy_bytes()}, {"longest_pause_s", c->longest_pause_s()}};
  }
  if (const JobPublisher* p = job_.publisher_.get()) {
    out["publications"] = {{"published", p->published()},
                           {"bases", p->bases()},
                           {"failed", p->failed()},
                           {"changed_rows", p->changed()},
                           {"delta_bytes", p->bytes()},
                           {"longest_pause_s", p->longest_pause_s()},
                           {"longest_delta_pause_s", p->longest_delta_pause_s()}};
  }
  const int64_t steps = job_.steps_done();
  out["plan_versus_actual"] =
      plan_versus_actual(job_.runtime_, *job_.trainer_, job_.planner_, job_.dense_,
                         {job_.warm_.stages, job_.trained_.stages, steps, warm_up_steps(steps), job_.trained_.sent});
  out["tables"] = tables();
  int64_t dropped = 0;
  for (const ShardedEmbeddings* collection : job_.trainer_->tables()) dropped += collection->dropped_ids();
  out["dropped_ids"] = static_cast<int64_t>(summed(static_cast<double>(dropped)));
  out["plan"] = config::parse_json(job_.plan().json(), {"the plan"});
  out["losses"] = losses;
  out["config"] = to_toml(job_.config_);
  return out.dump();
}

}  // namespace tessera
