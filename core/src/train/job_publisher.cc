#include "train/job_publisher.h"

#include <algorithm>
#include <utility>

#include "distributed/stopwatch.h"

namespace tessera {
namespace {

PublishOptions options_of(const PublishConfig& config) {
  PublishOptions out;
  out.directory = config.directory;
  out.base_every = config.base_every;
  out.keep_bases = static_cast<int>(config.keep_bases);
  out.pack.format = row_format_from(config.weights);
  for (const std::string& table : config.tables) {
    const size_t equals = table.rfind('=');
    if (equals == std::string::npos || equals == 0)
      fail(Code::kInvalidArgument, "publish.tables has \"", table, "\": NAME=FORMAT is meant, such as film=int4");
    out.pack.formats[table.substr(0, equals)] = row_format_from(table.substr(equals + 1));
  }
  if (config.every_s == 0 && config.every_steps == 0)
    fail(Code::kInvalidArgument, "publish.every_s and publish.every_steps are both 0: say how often to publish");
  return out;
}

}  // namespace

JobPublisher::JobPublisher(const PublishConfig& config, ModelTrainer& trainer, int64_t first_step, Watch watch)
    : publisher_(options_of(config), trainer.parallel(), trainer.dense_optimizer()),
      group_(trainer.group()),
      schedule_({config.every_steps, config.every_s, first_step}),
      watch_(std::move(watch)) {}

void JobPublisher::after_step(int64_t step, const Progress& progress) {
  if (schedule_.looks(step) && schedule_.due(step, false, group_)) publish(step, progress);
}

void JobPublisher::publish(int64_t step, const Progress& progress) {
  TrainPublish told{step, {}, 0, ""};
  Stopwatch stopwatch;
  try {
    told.what = publisher_.publish(progress, step);
  } catch (const Error& e) {  // the disk may do better the next time
    if (e.code() != Code::kUnavailable && e.code() != Code::kResourceExhausted) throw;
    told.error = e.what();
  }
  stopwatch.lap(told.pause_s, "publish");
  longest_pause_s_ = std::max(longest_pause_s_, told.pause_s);
  ++(told.error.empty() ? published_ : failed_);
  bases_ += told.what.base ? 1 : 0;
  changed_ += told.what.changed;
  bytes_ += told.what.bytes;
  if (watch_) watch_(told);
}

}  // namespace tessera
