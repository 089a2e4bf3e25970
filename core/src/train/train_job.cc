#include "tessera/train_job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "checkpoint/directory.h"
#include "config/json.h"
#include "config/read_file.h"
#include "data/hold_out.h"
#include "data/reader_choice.h"
#include "distributed/stopwatch.h"
#include "modules/graph_json.h"
#include "tessera/checkpoint.h"
#include "tessera/planner.h"
#include "tessera/sdk/nearest.h"
#include "tessera/traffic.h"
#include "train/arriving_batches.h"
#include "train/best_model.h"
#include "train/dense_spec.h"
#include "train/drawn_ids.h"
#include "train/job_checkpoints.h"
#include "train/job_data.h"
#include "train/job_model.h"
#include "train/job_publisher.h"
#include "train/metrics_log.h"
#include "train/observed_inputs.h"
#include "train/same_data.h"
#include "train/same_job.h"
#include "train/save_directories.h"
#include "train/saved_run.h"
#include "train/sorted_rows.h"
#include "train/start_rows.h"
#include "train/start_up.h"
#include "train/trace_file.h"
#include "train/train_report.h"
#include "train/training_metrics.h"
#include "train/unknown_id_sums.h"
#include "train/validation.h"
#include "train/warm_start.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kSampleEvery = 50;    // in one of n steps, tables are timed one by one
constexpr size_t kKeptLosses = 100000;  // for jobs without an end

ShardingPlan read_plan(const std::string& path) {
  const std::string text = config::read_file(path, "planner.plan: cannot read ");
  try {
    return ShardingPlan::from_json(text);
  } catch (const Error& e) {
    throw Error(e.code(), path + ": " + e.what());
  }
}

bool is_weighted(const std::vector<DataColumn>& columns) {
  return std::any_of(columns.begin(), columns.end(), [](const DataColumn& c) { return c.weighted; });
}

// Heads that fit every metric, to check the names of metrics before anything else is known.
std::vector<Prediction> named_heads(const Config& config) {
  if (config.model.type != kGraphType) return {{}};
  std::vector<Prediction> out;
  for (const HeadConfig& h : config.heads) out.push_back({h.name});
  return out;
}

// Fails if a metric's groups name no column of ids.
void check_keys(const HeadMetrics& metrics, const std::vector<DataColumn>& columns) {
  std::vector<std::string> known;
  for (const DataColumn& c : columns) known.push_back(c.name);
  for (const std::string& key : metrics.keys()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail(Code::kInvalidArgument, "metrics.names has a metric by \"", key,
           "\", which is not a column of ids; the nearest is \"", sdk::nearest_name(key, known), '"');
  }
}

// Fails if a label with `real = true` meets a metric that needs labels from 0 to 1. (Heads of logits are left out,
// because their loss needs such labels itself.)
void check_labels(const Config& config, const std::vector<Prediction>& heads, const Runtime& runtime) {
  const auto is_real = [&](const std::string& label) {
    return std::any_of(config.columns.begin(), config.columns.end(), [&](const ColumnConfig& c) {
      return c.as == "label" && c.real && std::find(c.name.begin(), c.name.end(), label) != c.name.end();
    });
  };
  std::vector<std::string> names = config.metrics.names;
  names.insert(names.end(), config.metrics.training.begin(), config.metrics.training.end());
  for (const HeadMetric& m : head_metrics(heads, names, &runtime)) {
    const Prediction& head = heads[m.head];
    const auto of = std::find_if(config.heads.begin(), config.heads.end(),
                                 [&](const HeadConfig& h) { return h.name == head.head; });
    if (head.logits || of == config.heads.end() || !is_real(of->label)) continue;
    if (!MetricSet({m.name}, {&runtime}).takes_any_labels(m.name))
      fail(Code::kInvalidArgument, "the metric \"", m.name, "\" needs labels from 0 to 1, but the label \"", of->label,
           "\" of the head \"", head.head, "\" may be any number (real = true); rmse, mae and ndcg fit such labels");
  }
}

// Returns one path for a folder, however it is spelled. If it cannot be resolved, the given spelling stays.
std::filesystem::path place_of(const std::string& folder) {
  std::error_code failed;
  const std::filesystem::path place = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), failed);
  return ((failed ? std::filesystem::path(folder) : place) / "").lexically_normal();
}

// Checks settings that need neither data nor model.
void check_settings(const Config& config, const TrainJobOptions& options) {
  (void)make_dense_optimizer(dense_spec(config.dense_optimizer), {});
  for (const LayerConfig& layer : config.layers) (void)dense_spec(layer, config.dense_optimizer);
  for (const auto& stages : {config.schedule.tables, config.schedule.dense}) (void)LearningRateSchedule(stages, 1);
  const ValidationConfig& v = config.validation;
  if (v.every_steps > 0 && v.every_epochs != ValidationConfig().every_epochs)
    fail(Code::kInvalidArgument, "validation.every_epochs = ", v.every_epochs,
         " has no effect with validation.every_steps: leave one of the two out");
  const char* const validates = !options.save_best.empty() ? "--save-best"
                                : v.patience > 0           ? "validation.patience"
                                : !v.monitor.empty()       ? "validation.monitor"
                                : v.restore_best           ? "validation.restore_best"
                                                           : nullptr;
  if (v.fraction == 0 && validates != nullptr)
    fail(Code::kInvalidArgument, validates, " needs rows to validate on: set validation.fraction");
  if (v.restore_best && !config.publish.directory.empty())
    fail(Code::kInvalidArgument,
         "validation.restore_best replaces all rows at the end, and a published model follows the rows that change: "
         "set it to false, or leave out publish.directory");
  if (!options.save_best.empty() && !options.save.empty() && place_of(options.save) == place_of(options.save_best))
    fail(Code::kInvalidArgument, "--save and --save-best are both ", options.save,
         ", but later checkpoints must not replace the best one: name another directory");
}

}  // namespace

TrainJob::TrainJob(const Runtime& runtime, const Config& config, const TrainJobOptions& options,
                   std::shared_ptr<ProcessGroup> group)
    : runtime_(runtime),
      config_(config),
      options_(options),
      group_(std::move(group)),
      metrics_(named_heads(config_), config_.metrics.names, &runtime) {
  check_same_job(*group_, config_, options_);
  check_settings(config_, options_);
  config_.data.reader = data::reader_of(runtime_, config_.data);
  if (config_.validation.restore_best && options_.save_best.empty()) {
    best_folder_ = std::make_unique<BestFolder>(options_, *group_);
    options_.save_best = best_folder_->path();
  }
  directories_ = std::make_unique<SaveDirectories>(options_, *group_);
  passed_over_ = directories_->passed_over();
  const std::vector<std::string>& resumable = directories_->resumable();
  const std::string from = resumable.empty() ? options_.load : resumable[0];
  const std::string encoding = !from.empty() && !config_.columns.empty() ? saved_encoding(from) : "";
  const auto [heads, columns] = check_job(runtime_, config_, encoding, compute_device(options_.device).id);
  metrics_ = HeadMetrics(heads, config_.metrics.names, &runtime_);
  check_keys(metrics_, columns);
  check_labels(config_, heads, runtime_);
  if (config_.validation.fraction > 0) scores_ = std::make_unique<ValidationScores>(config_.validation, metrics_);
  if (scores_) monitor_ = scores_->monitor();
  if (!config_.metrics.training.empty())
    training_metrics_ = std::make_unique<TrainingMetrics>(config_.metrics, heads, runtime_, group_->world_size());
  JobData job = read_training_data(runtime_, config_, encoding);
  data_ = std::move(job.data);
  rows_ = std::move(job.arriving);
  tables_ = std::move(job.tables);
  check_same_data(*group_, data_, rows_ != nullptr);
  if (std::string warning = sorted_rows_warning(data_); !warning.empty()) warnings_.push_back(std::move(warning));
  keep_for_validation();
  build_model();
  best_ = std::make_unique<BestModel>(options_.save_best, *trainer_);
  fingerprint_ = data_fingerprint(config_, data_);
  load();
  if (loaded_.empty()) set_frequencies(tables_, data_.train, *trainer_);
  if (loaded_.empty() && !options_.start.empty()) start();
  per_epoch_ = rows_ ? kNoEnd : training_batches().batches();
  steps_ = rows_ ? kNoEnd : per_epoch_ * config_.data.epochs;
  if (options_.max_steps) steps_ = std::min(steps_, *options_.max_steps);
  table_rates_ = LearningRateSchedule(config_.schedule.tables, steps_);
  dense_rates_ = LearningRateSchedule(config_.schedule.dense, steps_);
}

void TrainJob::keep_for_validation() {
  const ValidationConfig& v = config_.validation;
  if (v.fraction == 0) return;
  if (v.split == "data") {
    if (!data_.validation)
      fail(Code::kInvalidArgument, "validation.split = \"data\", but the reader \"", config_.data.reader,
           "\" keeps no rows for validation: set it to random or last");
    validation_ = data::hold_out(data_.validation, {v.fraction, false, static_cast<uint64_t>(config_.job.seed)}).second;
    return;
  }
  std::tie(data_.train, validation_) = data::hold_out(data_.train, data::HoldOut::of(config_));
  if (data_.train.size() == 0 || validation_.size() == 0)
    fail(Code::kInvalidArgument, "validation.fraction = ", v.fraction, " leaves ", data_.train.size(),
         " rows to train on and ", validation_.size(), " to validate on");
}

TrainJob::~TrainJob() = default;

BatchReader TrainJob::training_batches() const {
  return {data_.train,
          {config_.data.batch, group_->rank(), group_->world_size(), static_cast<uint64_t>(config_.job.seed),
           config_.data.shuffle}};
}

ProcessGroupOptions group_options(const CommConfig& comm, const Device& device) {
  const auto lossy = [&](const char* what) {
    return std::find(comm.lossy.begin(), comm.lossy.end(), what) != comm.lossy.end();
  };
  return {comm.backend, "{}", comm.timeout_s, device, lossy("rows"), lossy("gradients")};
}

void TrainJob::build_model() {
  const auto seed = static_cast<uint64_t>(config_.job.seed);
  ModelTrainerOptions o;
  o.tables = embedding_configs(tables_);
  o.is_weighted = is_weighted(data_.columns);
  const auto dense_inputs = static_cast<int64_t>(data_.dense.size());
  o.graph = model_of(runtime_, config_, tables_, dense_inputs);
  o.labels = data_.labels;
  o.drawn = drawn_features(config_, tables_, data_);
  o.seed = seed;
  o.dense_optimizer = dense_spec(config_.dense_optimizer);
  o.dense_max_gradient_norm = config_.dense_optimizer.max_gradient_norm;
  o.parallel.sharded.kernel = config_.job.kernel_plugin;
  o.parallel.sharded.seed = seed;
  o.parallel.sharded.stream = options_.device;
  o.parallel.sharded.bounds_check = bounds_check_of(tables_);
  o.parallel.bucket_mib = config_.comm.bucket_mib;
  if (!config_.planner.plan.empty()) o.parallel.plan = read_plan(config_.planner.plan);
  planner_ = planner_options(config_, tables_, group_->world_size(), group_->local_world_size(),
                             compute_device(options_.device));
  planner_.wire = wire_bytes_of(*group_);
  observe_inputs(data_, tables_, config_.data.batch, &planner_);
  o.parallel.planner = planner_;
  dense_ = dense_work(runtime_, config_, tables_, dense_inputs);
  trainer_ = std::make_unique<ModelTrainer>(runtime_, group_, std::move(o));
}

std::vector<LayerChoice> TrainJob::layers() {
  const int32_t device = trainer_->dense_on_device() ? static_cast<int32_t>(options_.device->device().type) : kDLCPU;
  const std::vector<LayerChoice> all = layer_choices(runtime_, device);
  std::vector<LayerChoice> out;
  for (const auto& [layer, component] : trainer_->layers().components()) {
    const auto known =
        std::find_if(all.begin(), all.end(), [&layer = layer](const LayerChoice& l) { return l.layer == layer; });
    out.push_back({layer, component, known == all.end() ? std::vector<std::string>() : known->instead_of});
  }
  return out;
}

void TrainJob::load() {
  for (const std::string& checkpoint : directories_->resumable()) {
    try {
      return load_from(checkpoint, false);
    } catch (const Error& e) {
      if (e.code() != Code::kDataLoss) throw;
      // Several checkpoints may need the same base.
      if (std::find(passed_over_.begin(), passed_over_.end(), e.what()) == passed_over_.end())
        passed_over_.emplace_back(e.what());
    }
  }
  directories_->refuse_to_begin_anew(passed_over_);
  if (!options_.load.empty()) load_from(options_.load, options_.new_data);
}

std::vector<std::string> TrainJob::warnings() const {
  std::vector<std::string> all = directories_->warnings();
  all.insert(all.end(), warnings_.begin(), warnings_.end());
  return all;
}

void TrainJob::load_from(const std::string& directory, bool new_data) {
  const std::string progress = load_checkpoint(directory, trainer_->parallel(), trainer_->dense_optimizer());
  loaded_ = directory;
  if (new_data) return;
  const SavedRun saved = SavedRun::from_progress(progress, directory);
  saved.check_same_data(fingerprint_, directory);
  first_step_ = saved.step;
  arrived_ = saved.arrived;
  if (scores_ && saved.scores && saved.scores->monitor == monitor_)
    scores_->go_on(saved.scores->least, saved.scores->since_best);
}

void TrainJob::start() {
  WarmStart done = start_from(options_.start, *trainer_, data_.encoding);
  const size_t parameters = trainer_->layers().parameters().size() + trainer_->layers().buffers().size();
  start_notes_ = {str_cat("begins with ", done.tables, " of ", tables_.size(), " tables and ", done.parameters, " of ",
                          parameters, " parameters from ", options_.start)};
  start_notes_.insert(start_notes_.end(), done.notes.begin(), done.notes.end());
}

// Returns the text that checkpoints hold beside the model.
std::string TrainJob::progress() {
  loop_->check_losses();        // a diverged model is not saved
  json tables = json::array();  // for tessera quantize, because tensors do not tell it
  for (const EmbeddingBagConfig& t : embedding_configs(tables_))
    tables.push_back({{"name", t.name}, {"features", t.feature_names}, {"pooling", to_string(t.pooling)}});
  json model = {{"type", config_.model.type}, {"bounds_check", tables_.front().bounds_check}, {"tables", tables}};
  if (is_weighted(data_.columns)) model["is_weighted"] = true;
  if (config_.model.type == kGraphType) model["graph"] = to_json(trainer_->graph());
  json progress = {{"step", first_step_ + steps_done()},
                   {"model", std::move(model)},
                   {"data", config::parse_json(fingerprint_, {"the data's fingerprint"})}};
  if (!data_.encoding.empty()) progress["encoding"] = config::parse_json(data_.encoding, {"the data's encoding"});
  if (arriving_ && !arriving_->position().empty())
    progress["arrived"] = config::parse_json(arriving_->position(), {"the reader's position"});
  if (scores_ && std::isfinite(scores_->least())) {
    progress["validation"] = {
        {"monitor", monitor_}, {"least", scores_->least()}, {"since_best", scores_->since_best()}};
  }
  return progress.dump();
}

void TrainJob::train(const TrainWatch& watch) {
  TESSERA_CHECK(!loop_, "a job trains once");
  ended_early_ = scores_ && scores_->exhausted() && first_step_ < steps_;  // in the run that this one continues
  const int64_t end = ended_early_ ? first_step_ : steps_;
  const int64_t planned = std::max<int64_t>(0, end - first_step_);
  if (!options_.save.empty())
    checkpoints_ = std::make_unique<JobCheckpoints>(
        options_, *trainer_, JobCheckpoints::Run{first_step_, steps_, directories_->save()}, watch.saved);
  if (!config_.publish.directory.empty())
    publisher_ =
        std::make_unique<JobPublisher>(config_.publish, *trainer_, first_step_, !options_.device, watch.published);
  if (!options_.save_best.empty()) best_->check_place(directories_->best());
  if (group_->rank() == 0) metrics_log_ = std::make_unique<MetricsLog>(config_.report, first_step_ > 0);
  trainer_->reset_stages();
  for (ShardedEmbeddings* t : trainer_->tables()) t->sample_shards(std::clamp<int64_t>(planned / 8, 2, kSampleEvery));
  ids_.assign(data_.columns.size(), 0.0);
  ahead_ = !rows_ && takes_ahead();
  if (!options_.trace.empty()) {
    const size_t most = most_spans(group_->world_size(), 2);
    trace_ = std::make_unique<Trace>(most);
    input_trace_ = std::make_unique<Trace>(most);
  }
  TrainLoopOptions o;
  o.first_step = first_step_;
  o.steps = end;
  o.ahead = ahead_;
  o.stop = [&] { return ended_early_ || (watch.stop && watch.stop()); };
  o.after_step = [&](TrainLoop&, const StepEnd& end) { after_step(end, watch); };
  o.step_trace = trace_.get();
  o.input_trace = input_trace_.get();
  for (ShardedEmbeddings* t : trainer_->tables()) base_rates_.push_back(t->learning_rates());
  set_learning_rates(first_step_);
  if (rows_) o.keep_losses = kKeptLosses;
  loop_ = std::make_unique<TrainLoop>(*trainer_, batches(watch), std::move(o));
  if (training_metrics_)
    trainer_->observe([&](const std::vector<Tensor>& scores, const Batch& b) { training_metrics_->add(scores, b); });
  loop_->run();
  loop_->check_losses();
  if (training_metrics_) training_ = training_metrics_->values(*group_);
  trained_ = spent();
  if (publisher_ && steps_done() > 0) publisher_->at_end(first_step_ + steps_done(), [&] { return progress(); });
  const bool as_saved =
      options_.resume && !loaded_.empty() && steps_done() == 0;  // a further copy would push out older ones
  if (config_.validation.restore_best && !stopped()) take_best();
  if (checkpoints_ && !as_saved)
    checkpoints_->at_end(first_step_ + steps_done(), stopped(), [&] { return progress(); });
  if (checkpoints_) checkpoints_->release();
  directories_->release();
  if (best_folder_ && !stopped()) {
    group_->barrier("best model");  // a rank may still look into the folder
    best_folder_->remove();
  }
}

ReadBatch TrainJob::batches(const TrainWatch& watch) {
  if (!rows_) return in_epochs(training_batches());
  ArrivingBatches::Options o{.batch = config_.data.batch, .position = arrived_, .stop = watch.stop};
  o.waiting = [this] {
    if (steps_done() == 0) return;
    const int64_t step = first_step_ + steps_done();
    if (publisher_) publisher_->while_waiting(step, [&] { return progress(); });
    if (checkpoints_) checkpoints_->while_waiting(step, [&] { return progress(); });
  };
  arriving_ = std::make_unique<ArrivingBatches>(std::move(rows_), *group_, std::move(o));
  return [this](int64_t, Batch& batch) {
    if (!arriving_->next(batch)) batch.global_size = 0;
  };
}

bool TrainJob::stopped() const {
  return loop_ && (loop_->stopped() || (arriving_ && arriving_->stopped())) && !ended_early();
}

void TrainJob::after_step(const StepEnd& end, const TrainWatch& watch) {
  if (end.step == first_step_ + 1) {
    trainer_->synchronize();  // wait until the device is done
    first_step_seconds_ = seconds_since_process_start();
  }
  if (steps_done() == warm_up_steps(steps_ - first_step_)) warm_ = spent();
  for (size_t key = 0; key < ids_.size(); ++key)
    ids_[key] += static_cast<double>(end.batch.sparse.length_per_key()[key]);
  if (watch.due && watch.due(end.step)) {
    const double loss = loop_->mean_loss();
    TrainProgress progress{end.step, (end.step - 1) / per_epoch_, loop_->samples(), loss};
    progress.table_rate = table_rates_.factor(end.step - 1);
    progress.dense_rate = dense_rates_.factor(end.step - 1);
    if (training_metrics_) progress.training = training_metrics_->values(*group_);
    if (metrics_log_) metrics_log_->add(progress);
    if (watch.report) watch.report(progress);
  }
  if (validation_due(end)) validate(end.step, watch);
  set_learning_rates(end.step);
  if (publisher_ && !end.last) publisher_->after_step(end.step, [&] { return progress(); });
  if (checkpoints_ && !end.last) checkpoints_->after_step(end.step, [&] { return progress(); });
}

bool TrainJob::validation_due(const StepEnd& end) const {
  if (validation_.size() == 0 || ended_early_) return false;
  if (end.step == steps_) return true;  // a save on a signal waits for no validation
  const ValidationConfig& v = config_.validation;
  const double every = v.every_steps > 0 ? static_cast<double>(v.every_steps)
                                         : std::max(1.0, v.every_epochs * static_cast<double>(per_epoch_));
  const double place = std::round(static_cast<double>(end.step) / every);
  return place > 0 && std::llround(place * every) == end.step;  // the nearest step to each multiple
}

void TrainJob::validate(int64_t step, const TrainWatch& watch) {
  Stopwatch stopwatch;
  loop_->check_losses();  // a diverged model is not the best
  const Spent before = spent();
  TrainValidation v{step, evaluate_on(validation_)};
  v.unknown_ids = unknown_ids_;
  stopwatch.lap(v.seconds, "validate");
  const Spent after = spent();
  validated_.stages.resize(after.stages.size());
  for (size_t i = 0; i < after.stages.size(); ++i)
    validated_.stages[i].second += after.stages[i].second - before.stages[i].second;
  validated_.sent += after.sent;
  validated_.sent -= before.sent;
  v.best = scores_->add({v.step, v.metrics});
  validations_.push_back(v);
  if (v.best && !options_.save_best.empty()) {
    const TrainSave save = best_->save(step, progress(), directories_->best());
    if (watch.saved) watch.saved(save);
  }
  if (metrics_log_) metrics_log_->add(v);
  if (watch.validated) watch.validated(v);
  ended_early_ = scores_->exhausted() && step < steps_;
}

TrainJob::Spent TrainJob::spent() {
  Spent now{trainer_->stages(), trainer_->bytes_sent()};
  for (size_t i = 0; i < validated_.stages.size(); ++i) now.stages[i].second -= validated_.stages[i].second;
  now.sent -= validated_.sent;
  return now;
}

// Sets the rates for the step that follows `step` steps.
void TrainJob::set_learning_rates(int64_t step) {
  const std::vector<ShardedEmbeddings*> tables = trainer_->tables();
  for (size_t i = 0; !table_rates_.empty() && i < tables.size(); ++i)
    tables[i]->scale_learning_rates(base_rates_[i], table_rates_.factor(step));
  if (!dense_rates_.empty()) trainer_->scale_dense_learning_rates(dense_rates_.factor(step));
}

bool TrainJob::takes_ahead() const { return config_.job.pipeline ? *config_.job.pipeline : can_work_ahead(*group_); }

void TrainJob::take_best() {
  if (tested_step_) return;
  tested_step_ = first_step_ + steps_done();
  if (scores_) tested_step_ = best_->load(*tested_step_, monitor_, scores_->least()).value_or(*tested_step_);
}

const std::optional<TrainSave>& TrainJob::unsaved_best() const { return best_->unsaved(); }

MetricValues TrainJob::evaluate() {
  Stopwatch watch;
  take_best();
  if (data_.test_rows() == 0) return metrics_.values();
  MetricValues metrics = evaluate_on(data_.test);
  watch.lap(evaluate_seconds_, "evaluate");
  return metrics;
}

MetricValues TrainJob::evaluate_on(const Samples& samples) {
  const int64_t batch = std::max<int64_t>(config_.data.batch, 1024);
  const bool spread = samples.streamed && group_->world_size() > 1;  // without it, one rank would get a whole batch
  if (!vocabularies_) vocabularies_.emplace(data_.encoding);
  UnknownIdCounter unknown = *vocabularies_;
  const MetricValues metrics =
      tessera::evaluate(*trainer_, {samples, {batch, group_->rank(), group_->world_size(), 1, spread}}, metrics_,
                        [&](const Batch& b) { unknown.add(b.sparse); });
  unknown_ids_ = added_up(unknown.counts(), *group_);
  return of_first_rank(metrics, *group_);
}

std::string TrainJob::report(const MetricValues& metrics) { return TrainReport(*this).text(metrics); }

std::string TrainJob::write_trace() {
  return tessera::write_trace(options_.trace, {{"steps", trace_.get()}, {"inputs", input_trace_.get()}}, *group_);
}

}  // namespace tessera
