#include "train/job.h"

#include <chrono>
#include <cmath>
#include <fstream>
#include <numeric>
#include <span>
#include <sstream>
#include <thread>

#include "layers.h"
#include "tessera/checkpoint.h"
#include "tessera/planner.h"
#include "train/job_data.h"
#include "train/observed_inputs.h"
#include "train/plan_versus_actual.h"
#include "train/progress.h"
#include "train/saved_run.h"
#include "train/start_up.h"
#include "train/stop_signals.h"
#include "train/traffic.h"

namespace tessera::cli {
namespace {

using json = nlohmann::ordered_json;

// Code is compiled, memory grows and is touched for the first time: not what a plan predicts.
int64_t warm_up_steps(int64_t steps) { return std::min<int64_t>(50, steps / 5); }

constexpr int64_t kSampleEvery = 50;  // steps: tables are timed one by one in one of so many

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

DenseOptimizerSpec dense_spec(const DenseOptimizerConfig& c) {
  // Each optimizer takes the settings that it knows; the config has one table for all.
  json all = {{"learning_rate", c.learning_rate}, {"weight_decay", c.weight_decay}};
  if (c.name == "sgd")
    all["momentum"] = c.momentum;
  else
    all["eps"] = c.eps;
  if (c.name == "adam") all["betas"] = {c.beta1, c.beta2};
  return {c.name, all.dump()};
}

ShardingPlan read_plan(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail(Code::kNotFound, "planner.plan: no file ", path);
  std::stringstream text;
  text << in.rdbuf();
  try {
    return ShardingPlan::from_json(text.str());
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

}  // namespace

TrainJob::TrainJob(const Runtime& runtime, const Config& config, const JobOptions& options,
                   std::shared_ptr<ProcessGroup> group)
    : runtime_(runtime), config_(config), options_(options), group_(std::move(group)) {
  JobData job = read_job_data(config_);
  data_ = std::move(job.data);
  tables_ = std::move(job.tables);
  check_parts(runtime_, config_, tables_);
  build_model();
  fingerprint_ = data_fingerprint(config_, data_);
  if (!options_.load.empty()) load();
}

void TrainJob::build_model() {
  const auto seed = static_cast<uint64_t>(config_.job.seed);
  DlrmTrainerOptions o;
  o.tables = embedding_configs(tables_);
  o.dlrm.dense_inputs = static_cast<int64_t>(data_.dense.size());
  o.dlrm.embedding_dim = config_.model.embedding_dim;
  o.dlrm.bottom_mlp = config_.model.bottom_mlp;
  o.dlrm.top_mlp = config_.model.top_mlp;
  o.dlrm.seed = seed;
  o.dense_optimizer = dense_spec(config_.dense_optimizer);
  o.parallel.sharded.kernel = config_.job.kernel;
  o.parallel.sharded.seed = seed;
  o.parallel.sharded.stream = options_.device;
  o.parallel.sharded.bounds_check = bounds_check_of(tables_);
  o.parallel.bucket_mib = config_.comm.bucket_mib;
  if (!config_.planner.plan.empty()) o.parallel.plan = read_plan(config_.planner.plan);
  planner_ = planner_options(config_, tables_, group_->world_size(), group_->local_world_size(),
                             compute_device(options_.device));
  observe_inputs(data_, tables_, config_.data.batch, &planner_);
  o.parallel.planner = planner_;
  dense_ = dense_work(config_, tables_, o.dlrm.dense_inputs);
  trainer_ = std::make_unique<DlrmTrainer>(runtime_, group_, std::move(o));
}

std::vector<LayerChoice> TrainJob::layers() {
  const int32_t device = trainer_->dense_on_device() ? static_cast<int32_t>(options_.device->device().type) : kDLCPU;
  const std::vector<LayerChoice> all = layer_choices(runtime_, device);
  std::vector<LayerChoice> out;
  for (const auto& [layer, component] : trainer_->dlrm().components()) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const LayerChoice& l) { return l.layer == layer; });
    out.push_back({layer, component, known == all.end() ? std::vector<std::string>() : known->instead_of});
  }
  return out;
}

void TrainJob::load() {
  const std::string progress = load_checkpoint(options_.load, trainer_->parallel(), trainer_->dense_optimizer());
  if (options_.new_data) return;
  const SavedRun saved = SavedRun::from_progress(progress, options_.load);
  saved.check_same_data(fingerprint_, options_.load);
  first_step_ = saved.step;
}

void TrainJob::save() {
  look_at_losses();             // what has come apart is not saved
  json tables = json::array();  // what no tensor tells, for tessera quantize
  for (const EmbeddingBagConfig& t : embedding_configs(tables_))
    tables.push_back({{"name", t.name}, {"features", t.feature_names}, {"pooling", to_string(t.pooling)}});
  const json progress = {
      {"step", first_step_ + steps_done()},
      {"model", {{"type", config_.model.type}, {"bounds_check", tables_.front().bounds_check}, {"tables", tables}}},
      {"data", fingerprint_}};
  save_checkpoint(options_.save, trainer_->parallel(), trainer_->dense_optimizer(), progress.dump(), options_.keep);
}

void TrainJob::train() {
  BatchReader reader(data_.train, {config_.data.batch, group_->rank(), group_->world_size(),
                                   static_cast<uint64_t>(config_.job.seed), config_.data.shuffle});
  const int64_t per_epoch = reader.batches();
  steps_ = per_epoch * config_.data.epochs;
  if (options_.max_steps > 0) steps_ = std::min(steps_, options_.max_steps);
  if (!options_.save.empty()) {
    const int64_t saves = options_.save_every > 0 ? (steps_ - first_step_) / options_.save_every + 1 : 1;
    check_checkpoint_target(options_.save, trainer_->parallel(), trainer_->dense_optimizer(), saves, options_.keep);
  }
  // Rank 0 draws, and its terminal decides for all when losses are added up.
  const Tensor terminal = Tensor::scalar<int32_t>(stderr_is_terminal());
  group_->broadcast(terminal, 0, "progress").wait();
  Progress progress({first_step_, steps_, config_.report.log_every, group_->rank() == 0, terminal.item() != 0});
  trainer_->reset_stages();
  ids_.assign(data_.columns.size(), 0.0);
  trainer_->embeddings().sample_shards(std::clamp<int64_t>((steps_ - first_step_) / 8, 2, kSampleEvery));
  ahead_ = takes_ahead();
  const StopSignals signals;
  TrainInputs inputs(std::move(reader), trainer_->embeddings(),
                     {first_step_, steps_, ahead_, [] { return StopSignals::requested(); }});
  if (!options_.trace.empty()) {
    const size_t most = most_spans(group_->world_size(), 2);
    trace_ = std::make_unique<Trace>(most);
    input_trace_ = std::make_unique<Trace>(most);
    trainer_->set_trace(trace_.get());
    inputs.set_trace(input_trace_.get());
  }
  const double start = now();
  try {
    train_steps(inputs, progress, per_epoch);
  } catch (const std::exception& e) {
    inputs.abort(e.what());
    throw;
  }
  progress.finish();
  if (options_.device) options_.device->synchronize();
  seconds_ = now() - start;
  read_seconds_ = inputs.read_s();
  waited_seconds_ = inputs.waited_s();
  trainer_->set_trace(nullptr);
  sent_ = trainer_->embeddings().bytes_sent();
  trained_ = trainer_->stages();
  if (!options_.save.empty()) save();
}

void TrainJob::train_steps(TrainInputs& inputs, Progress& progress, int64_t per_epoch) {
  const int64_t warm_up = warm_up_steps(steps_ - first_step_);
  for (int64_t step = first_step_; step < steps_ && !stopped_; ++step) {
    if (trace_) trace_->set_step(step);
    TrainInputs::Input& input = inputs.next();
    const Batch& batch = input.batch;
    stopped_ = trainer_->step(batch, std::move(input.taken), StopSignals::requested());
    batch_sizes_.push_back(batch.global_size);
    if (step == first_step_) {
      if (options_.device) options_.device->synchronize();  // done, and not only enqueued
      first_step_seconds_ = seconds_since_process_start();
    }
    samples_ += batch.global_size;
    if (steps_done() == warm_up) warm_ = trainer_->stages();
    for (size_t key = 0; key < ids_.size(); ++key) ids_[key] += static_cast<double>(batch.sparse.length_per_key()[key]);
    if (progress.due(step + 1)) progress.report(step + 1, step / per_epoch, samples_, mean_loss());
    const bool last = step + 1 == steps_ || stopped_;  // that is saved anyway
    if (options_.save_every > 0 && (step + 1) % options_.save_every == 0 && !last) save();
  }
}

std::string TrainJob::where_it_ended() const {
  const std::string done = cat(first_step_ + steps_done(), " of ", steps_, " steps");
  if (stopped_) {
    return cat("stopped by a signal after ", done, "; ",
               options_.save.empty() ? std::string("nothing was saved, without --save DIR")
                                     : cat("--load ", options_.save, " goes on from there"));
  }
  if (options_.load.empty()) return "there is nothing to train: the job has no steps";
  const bool by_option = options_.max_steps > 0 && steps_ == options_.max_steps;
  return cat("nothing is left to train: ", options_.load, " is at step ", first_step_, ", and ",
             by_option ? cat("--max-steps ", steps_) : cat("data.epochs = ", config_.data.epochs, " ends at ", steps_),
             "; raise ", by_option ? "it" : "data.epochs",
             " to go on, or give --new-data to begin again with the data");
}

void TrainJob::write_trace() const {
  const std::string wrong =
      cli::write_trace(options_.trace, {{"steps", trace_.get()}, {"inputs", input_trace_.get()}}, *group_);
  if (!wrong.empty()) std::fprintf(stderr, "tessera: warning: %s\n", wrong.c_str());
}

// The input thread needs a core; without one it only takes turns with the step.
bool TrainJob::takes_ahead() const {
  if (options_.device) return false;
  if (config_.job.pipeline) return *config_.job.pipeline;
  const bool here = static_cast<int>(std::thread::hardware_concurrency()) > group_->local_world_size();
  return summed(here ? 1 : 0) == group_->world_size();
}

// What of the inputs' work ran behind the steps before.
json TrainJob::pipeline() const {
  double work = read_seconds_;
  for (const auto& [name, seconds] : trained_) {
    if (name == kRouteStage || name == kExchangeIdsStage) work += seconds;
  }
  const double us = 1e6 / static_cast<double>(std::max<int64_t>(1, steps_done()));
  return {{"work_us_per_step", work * us},
          {"waited_us_per_step", waited_seconds_ * us},
          {"hidden_us_per_step", std::max(0.0, work - waited_seconds_) * us}};
}

double TrainJob::mean_loss() {
  look_at_losses();
  const std::span<const double> news = std::span(global_).subspan(shown_);
  shown_ = global_.size();
  return news.empty() ? 0 : std::accumulate(news.begin(), news.end(), 0.0) / static_cast<double>(news.size());
}

void TrainJob::look_at_losses() {
  std::vector<double> sums = trainer_->take_losses();
  if (sums.empty()) return;
  for (size_t i = 0; i < sums.size(); ++i) sums[i] /= static_cast<double>(batch_sizes_[global_.size() + i]);
  const Tensor part = Tensor::from(sums);
  if (group_->world_size() > 1) group_->all_reduce(part, ReduceOp::kSum, "losses").wait();
  for (double loss : part.span<double>()) {
    global_.push_back(loss);
    if (!std::isfinite(loss)) {
      fail(Code::kFailedPrecondition, "the loss of step ", first_step_ + std::ssize(global_), " is ", loss,
           ": training has come apart, a lower learning rate may keep it together");
    }
  }
}

BinaryMetrics TrainJob::evaluate() {
  const double start = now();
  Predictions mine;
  BatchReader reader(data_.test,
                     {std::max<int64_t>(config_.data.batch, 1024), group_->rank(), group_->world_size(), 1, false});
  for (Batch batch; reader.next(batch);) {
    const Tensor logits = trainer_->predict(batch);
    if (batch.labels.numel()) mine.add(logits, batch.labels);
  }
  // Everybody's predictions on every rank: 8 bytes a sample.
  const int world = group_->world_size();
  Predictions all;
  if (world == 1) {
    all = std::move(mine);
  } else {
    const Tensor counts = Tensor::zeros({world}, DType::kInt64);
    counts.data<int64_t>()[group_->rank()] = mine.size();
    group_->all_reduce(counts, ReduceOp::kSum, "test samples").wait();
    int64_t total = 0;
    for (int64_t n : counts.span<int64_t>()) total += n;
    const Tensor logits = Tensor::empty({total}), labels = Tensor::empty({total});
    group_->all_gather_v(Tensor::from(mine.logits()), logits, counts.span<int64_t>(), "logits").wait();
    group_->all_gather_v(Tensor::from(mine.labels()), labels, counts.span<int64_t>(), "labels").wait();
    all.add(logits, labels);
  }
  evaluate_seconds_ = now() - start;
  return all.metrics();
}

std::vector<double> TrainJob::largest(std::vector<double> values) const {
  const Tensor t = Tensor::from(values);
  if (group_->world_size() > 1) group_->all_reduce(t, ReduceOp::kMax, "stages").wait();
  return t.to_vector<double>();
}

// The plan's bytes are those of a whole batch, with as many ids in a bag as were read on average.
json TrainJob::traffic() {
  const Tensor ids = Tensor::from(ids_);
  group_->all_reduce(ids, ReduceOp::kSum, "ids").wait();
  TrafficInput input;
  input.world_size = group_->world_size();
  input.local_world_size = group_->local_world_size();
  input.batch = static_cast<double>(config_.data.batch) / group_->world_size();
  for (size_t c = 0; c < ids_.size(); ++c) {
    const double bags = static_cast<double>(std::max<int64_t>(1, samples_));
    input.ids_per_bag[data_.columns[c].name] = ids.data<double>()[c] / bags;
  }
  const auto planned =
      expected_traffic(embedding_configs(tables_), plan().at(Dlrm::kCollectionPath), input, group_->rank());
  return traffic_report(*group_, sent_, static_cast<double>(steps_done()), planned);
}

json TrainJob::report(const BinaryMetrics& metrics) {
  Stages stages = trained_;
  stages.insert(stages.begin(), {"read", read_seconds_});
  std::vector<double> mine;
  for (const auto& [name, seconds] : stages) mine.push_back(seconds);
  const auto worst = largest(mine);
  json out;
  out["model"] = config_.model.type;
  out["data"] = {{"name", data_.name}, {"train_rows", data_.train_rows()}, {"test_rows", data_.test_rows()}};
  out["world_size"] = group_->world_size();
  out["backend"] = group_->backend();
  out["device"] = options_.device ? options_.device->id() : "cpu";
  out["dense_device"] = trainer_->dense_on_device() ? options_.device->id() : "cpu";
  out["layers"] = layers_json(layers());
  out["steps"] = steps_done();
  out["first_step"] = first_step_;
  const double n = static_cast<double>(std::max<int64_t>(1, steps_done()));
  double sum = 0;
  for (double loss : global_) sum += loss;
  out["train"] = {{"samples", samples_},
                  {"seconds", seconds_},
                  {"samples_per_s", seconds_ > 0 ? samples_ / seconds_ : 0},
                  {"loss", global_.empty() ? json() : json(sum / static_cast<double>(global_.size()))}};
  out["test"] = {{"samples", metrics.samples},         {"auc", metrics.auc},
                 {"logloss", metrics.logloss},         {"normalized_entropy", metrics.normalized_entropy},
                 {"calibration", metrics.calibration}, {"seconds", evaluate_seconds_}};
  json table = json::object();
  for (size_t i = 0; i < stages.size(); ++i) {
    table[stages[i].first] = {{"us_per_step", 1e6 * stages[i].second / n}, {"largest_us_per_step", 1e6 * worst[i] / n}};
  }
  out["stages"] = std::move(table);
  out["seconds_to_first_step"] = first_step_seconds_;
  if (ahead_) out["pipeline"] = pipeline();
  if (group_->world_size() > 1) out["bytes_per_step"] = traffic();
  json comparison = plan_versus_actual(runtime_, *trainer_, planner_, dense_,
                                       {warm_, trained_, steps_done(), warm_up_steps(steps_done()), sent_});
  out["plan_versus_actual"] = std::move(comparison);
  out["dropped_ids"] = static_cast<int64_t>(summed(static_cast<double>(trainer_->embeddings().dropped_ids())));
  out["plan"] = json::parse(plan().json());
  out["losses"] = global_;
  out["config"] = to_toml(config_);
  return out;
}

double TrainJob::summed(double value) const {
  const Tensor t = Tensor::scalar(value);
  if (group_->world_size() > 1) group_->all_reduce(t, ReduceOp::kSum, "counts").wait();
  return t.item();
}

}  // namespace tessera::cli
