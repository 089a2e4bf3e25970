#include "train/job_run.h"

#include <algorithm>
#include <cmath>

#include "distributed/stopwatch.h"
#include "train/job_model.h"
#include "train/saved_model.h"
#include "train/start_up.h"
#include "train/trace_file.h"

namespace tessera {
namespace {

using json = nlohmann::ordered_json;

constexpr int64_t kSampleEvery = 50;    // in one of n steps, tables are timed one by one
constexpr size_t kKeptLosses = 100000;  // for jobs without an end

}  // namespace

int64_t warm_up_steps(int64_t steps) { return std::min<int64_t>(50, steps / 5); }

JobRun::JobRun(JobSetup& job, TrainWatch watch)
    : job_(job),
      watch_(std::move(watch)),
      trainer_(job.trainer()),
      // in the run that this one continues
      ended_early_(job.scores && job.scores->exhausted() && job.start.first_step < job.steps),
      end_(ended_early_ ? job.start.first_step : job.steps),
      best_(job.options.save_best, trainer_) {
  const int64_t first = job_.start.first_step;
  if (!job_.options.save.empty())
    checkpoints_.emplace(job_.options, trainer_, JobCheckpoints::Run{first, job_.steps, job_.directories.save()},
                         watch_.saved);
  if (!job_.config.publish.directory.empty())
    publisher_.emplace(job_.config.publish, trainer_, first, !job_.options.device, watch_.published);
  if (!job_.options.save_best.empty()) best_.check_place(job_.directories.best());
  if (job_.group->rank() == 0) log_.emplace(job_.config.report, first > 0);
  trainer_.reset_stages();
  const int64_t planned = std::max<int64_t>(0, end_ - first);
  for (ShardedEmbeddings* t : trainer_.tables()) {
    t->sample_shards(std::clamp<int64_t>(planned / 8, 2, kSampleEvery));
    base_rates_.push_back(t->learning_rates());
  }
  out_.ids.assign(job_.data.data.columns.size(), 0.0);
  const std::optional<bool>& pipeline = job_.config.job.pipeline;
  out_.ahead = !job_.data.arriving && (pipeline ? *pipeline : can_work_ahead(*job_.group));
  if (!job_.options.trace.empty()) {
    const size_t most = most_spans(job_.group->world_size(), 2);
    out_.step_trace = std::make_unique<Trace>(most);
    out_.input_trace = std::make_unique<Trace>(most);
  }
}

TrainLoopOptions JobRun::loop_options() {
  TrainLoopOptions o{.first_step = job_.start.first_step, .steps = end_, .ahead = out_.ahead};
  o.stop = [this] { return ended_early_ || (watch_.stop && watch_.stop()); };
  o.after_step = [this](TrainLoop&, const StepEnd& end) { after_step(end); };
  o.step_trace = out_.step_trace.get();
  o.input_trace = out_.input_trace.get();
  if (job_.data.arriving) o.keep_losses = kKeptLosses;
  return o;
}

ReadBatch JobRun::batches() {
  if (!job_.data.arriving) return in_epochs(training_batches(job_.config, job_.data.data, *job_.group));
  ArrivingBatches::Options o{.batch = job_.config.data.batch, .position = job_.arrived, .stop = watch_.stop};
  o.waiting = [this] { while_waiting(); };
  arriving_ = std::make_unique<ArrivingBatches>(std::move(job_.data.arriving), *job_.group, std::move(o));
  return [this](int64_t, Batch& batch) {
    if (!arriving_->next(batch)) batch.global_size = 0;
  };
}

RunResult JobRun::run() {
  set_learning_rates(job_.start.first_step);
  TrainLoopOptions options = loop_options();  // before the rows are taken
  loop_.emplace(trainer_, batches(), std::move(options));
  if (job_.training)
    trainer_.observe([&](const std::vector<Tensor>& scores, const Batch& b) { job_.training->add(scores, b); });
  loop_->run();
  trainer_.settle();
  loop_->check_losses();
  if (job_.training) out_.training = job_.training->values(*job_.group);
  out_.all = spent();
  TrainResult& trained = out_.trained;
  trained.steps_done = loop_->steps_done();
  trained.ended_early = ended_early_;
  trained.stopped = (loop_->stopped() || (arriving_ && arriving_->stopped())) && !ended_early_;
  trained.model_step = trained.steps_done == 0 ? job_.model_step.value_or(step()) : step();
  if (job_.scores) out_.least = job_.scores->least();
  save_at_end();
  out_.losses = loop_->losses();
  out_.samples = loop_->samples();
  out_.seconds = loop_->seconds();
  out_.read_s = loop_->read_s();
  out_.waited_s = loop_->waited_s();
  if (arriving_) out_.arrived = arriving_->arrived();
  if (log_) out_.trained.lost_log_lines = log_->lost();
  if (checkpoints_) out_.checkpoints = checkpoints_->counts();
  if (publisher_) out_.publications = publisher_->counts();
  return std::move(out_);
}

void JobRun::save_at_end() {
  TrainResult& trained = out_.trained;
  if (publisher_ && trained.steps_done > 0) publisher_->at_end(step(), [this] { return progress(); });
  // a further copy would push out older ones
  const bool as_saved = job_.options.resume && !job_.start.loaded.empty() && trained.steps_done == 0;
  if (job_.config.validation.restore_best && !trained.stopped && job_.scores)
    trained.model_step = best_.load(step(), job_.start.monitor, out_.least).value_or(trained.model_step);
  if (checkpoints_ && !as_saved) checkpoints_->at_end(step(), trained.stopped, [this] { return progress(); });
  if (checkpoints_) checkpoints_->release();
  job_.directories.release();
  if (job_.best_folder && !trained.stopped) {
    job_.group->barrier("best model");  // a rank may still look into the folder
    job_.best_folder->remove();
  }
}

std::string JobRun::progress() {
  loop_->check_losses();  // a diverged model is not saved
  trainer_.settle();
  SavedRun run{.step = step(),
               .data = job_.fingerprint,
               .model = model_description(job_.config, job_.data, trainer_.graph()),
               .encoding = job_.data.data.encoding};
  if (const int64_t restored = out_.trained.model_step; restored > 0 && restored != step()) run.model_step = restored;
  if (arriving_) run.arrived = arriving_->position();
  if (job_.scores && std::isfinite(job_.scores->least()))
    run.scores = {job_.start.monitor, job_.scores->least(), job_.scores->since_best()};
  return run.text();
}

void JobRun::while_waiting() {
  if (loop_->steps_done() == 0) return;
  if (publisher_) publisher_->while_waiting(step(), [this] { return progress(); });
  if (checkpoints_) checkpoints_->while_waiting(step(), [this] { return progress(); });
}

void JobRun::after_step(const StepEnd& end) {
  if (end.step == job_.start.first_step + 1) {
    trainer_.synchronize();  // wait until the device is done
    out_.first_step_seconds = seconds_since_process_start();
  }
  if (loop_->steps_done() == warm_up_steps(job_.steps - job_.start.first_step)) out_.warm = spent();
  for (size_t key = 0; key < out_.ids.size(); ++key)
    out_.ids[key] += static_cast<double>(end.batch.sparse.length_per_key()[key]);
  if (watch_.due && watch_.due(end.step)) {
    const double loss = loop_->mean_loss();
    TrainProgress progress{end.step, (end.step - 1) / job_.per_epoch, loop_->samples(), loss};
    progress.table_rate = job_.table_rates.factor(end.step - 1);
    progress.dense_rate = job_.dense_rates.factor(end.step - 1);
    if (job_.training) progress.training = job_.training->values(*job_.group);
    if (log_) log_->add(progress);
    if (watch_.report) watch_.report(progress);
  }
  if (validation_due(end)) validate(end.step);
  set_learning_rates(end.step);
  if (end.step % job_.config.job.accumulate != 0) return;  // batches wait, whose gradients no checkpoint has
  if (publisher_ && !end.last) publisher_->after_step(end.step, [this] { return progress(); });
  if (checkpoints_ && !end.last) checkpoints_->after_step(end.step, [this] { return progress(); });
}

bool JobRun::validation_due(const StepEnd& end) const {
  if (job_.validation.size() == 0 || ended_early_) return false;
  if (end.step == job_.steps) return true;  // a save on a signal waits for no validation
  const ValidationConfig& v = job_.config.validation;
  const double every = v.every_steps > 0 ? static_cast<double>(v.every_steps)
                                         : std::max(1.0, v.every_epochs * static_cast<double>(job_.per_epoch));
  const double place = std::round(static_cast<double>(end.step) / every);
  return place > 0 && std::llround(place * every) == end.step;  // the nearest step to each multiple
}

void JobRun::validate(int64_t step) {
  Stopwatch stopwatch;
  loop_->check_losses();  // a diverged model is not the best
  const Spent before = spent();
  Evaluation found = evaluate(job_, job_.validation);
  TrainValidation v{.step = step, .metrics = std::move(found.metrics), .unknown_ids = std::move(found.unknown_ids)};
  stopwatch.lap(v.seconds, "validate");
  const Spent after = spent();
  validated_.stages.resize(after.stages.size());
  for (size_t i = 0; i < after.stages.size(); ++i)
    validated_.stages[i].second += after.stages[i].second - before.stages[i].second;
  validated_.sent += after.sent;
  validated_.sent -= before.sent;
  v.best = job_.scores->add({v.step, v.metrics});
  out_.trained.validations.push_back(v);
  if (v.best && !job_.options.save_best.empty()) {
    const TrainSave save = best_.save(step, progress(), job_.directories.best());
    out_.trained.unsaved_best = save.error.empty() ? std::nullopt : std::optional(save);
    if (watch_.saved) watch_.saved(save);
  }
  if (log_) log_->add(v);
  if (watch_.validated) watch_.validated(v);
  ended_early_ = job_.scores->exhausted() && step < job_.steps;
}

Spent JobRun::spent() const {
  Spent now{trainer_.stages(), trainer_.bytes_sent()};
  for (size_t i = 0; i < validated_.stages.size(); ++i) now.stages[i].second -= validated_.stages[i].second;
  now.sent -= validated_.sent;
  return now;
}

// Sets the rates for the step that follows `step` steps.
void JobRun::set_learning_rates(int64_t step) {
  const std::vector<ShardedEmbeddings*> tables = trainer_.tables();
  for (size_t i = 0; !job_.table_rates.empty() && i < tables.size(); ++i)
    tables[i]->scale_learning_rates(base_rates_[i], job_.table_rates.factor(step));
  if (!job_.dense_rates.empty()) trainer_.scale_dense_learning_rates(job_.dense_rates.factor(step));
}

}  // namespace tessera
