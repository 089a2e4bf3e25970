#include "train/job_publisher.h"

#include <algorithm>
#include <utility>

#include "distributed/stopwatch.h"

namespace tessera {
namespace {

PublishOptions options_of(const PublishConfig& config, bool beside) {
  PublishOptions out;
  out.beside = beside;
  out.directory = config.directory;
  out.base_every = config.base_every;
  out.keep_bases = static_cast<int>(config.keep_bases);
  out.pack.format = row_format_from(config.weights);
  for (const std::string& table : config.tables) {
    const size_t equals = table.rfind('=');
    if (equals == std::string::npos || equals == 0)
      fail(Code::kInvalidArgument, "publish.tables has \"", table, "\": write NAME=FORMAT, such as film=int4");
    out.pack.formats[table.substr(0, equals)] = row_format_from(table.substr(equals + 1));
  }
  if (config.every_s == 0 && config.every_steps == 0)
    fail(Code::kInvalidArgument, "publish.every_s and publish.every_steps are both 0: set one of them");
  return out;
}

}  // namespace

JobPublisher::JobPublisher(const PublishConfig& config, ModelTrainer& trainer, int64_t first_step, bool beside,
                           Watch watch)
    : trainer_(trainer),
      publisher_(options_of(config, beside), trainer.parallel(), trainer.dense_optimizer()),
      group_(trainer.group()),
      schedule_({config.every_steps, config.every_s, first_step}),
      by_steps_(config.every_steps > 0),
      watch_(std::move(watch)) {}

void JobPublisher::after_step(int64_t step, const Progress& progress) {
  const bool looks = schedule_.looks(step);
  look_at_last(looks && by_steps_);
  if (!looks || !schedule_.due(step, writing_.has_value(), group_)) return;
  publish(step, progress);
}

void JobPublisher::while_waiting(int64_t step, const Progress& progress) {
  look_at_last(false);
  if (by_steps_ || step == published_step_ || !schedule_.due(step, writing_.has_value(), group_)) return;
  publish(step, progress);
}

void JobPublisher::at_end(int64_t step, const Progress& progress) {
  look_at_last(true);
  publish(step, progress);
  look_at_last(true);
  if (error_) throw Error(*error_);
}

void JobPublisher::publish(int64_t step, const Progress& progress) {
  if (error_) throw Error(*error_);
  trainer_.settle();
  TrainPublish told{step, {}, 0, ""};
  Stopwatch stopwatch;
  try {
    publisher_.start(progress, step);
    published_step_ = step;
  } catch (const Error& e) {
    if (!of_the_disk(e)) throw;
    told.error = e.what();
  }
  stopwatch.lap(told.pause_s, "publish");
  counts_.longest_pause_s = std::max(counts_.longest_pause_s, told.pause_s);
  if (counts_.bases > 0) counts_.longest_delta_pause_s = std::max(counts_.longest_delta_pause_s, told.pause_s);
  if (!told.error.empty()) return tell(told);
  writing_ = std::move(told);
}

void JobPublisher::look_at_last(bool wait) {
  if (!writing_ || (!wait && publisher_.busy())) return;
  TrainPublish told = *std::exchange(writing_, std::nullopt);
  try {
    told.what = publisher_.finish();
  } catch (const Error& e) {
    if (!of_the_disk(e)) error_ = e;
    told.error = e.what();
    published_step_ = -1;
  }
  tell(told);
}

void JobPublisher::tell(const TrainPublish& told) {
  ++(told.error.empty() ? counts_.published : counts_.failed);
  counts_.bases += told.what.base ? 1 : 0;
  counts_.changed_rows += told.what.changed;
  counts_.delta_bytes += told.what.bytes;
  if (watch_) watch_(told);
}

}  // namespace tessera
