#include "train/job_checkpoints.h"

#include <algorithm>
#include <utility>

#include "distributed/stopwatch.h"
#include "tessera/abi/draft/changes.h"

namespace tessera {

JobCheckpoints::JobCheckpoints(const TrainJobOptions& options, ModelTrainer& trainer, const Run& run, Watch watch)
    : writer_(options.save, trainer.parallel(), trainer.dense_optimizer(), options.keep),
      group_(trainer.group()),
      schedule_({options.save_every, 60 * options.save_every_minutes, run.first_step}),
      watch_(std::move(watch)),
      full_every_(options.save_full_every) {
  writer_.hold(run.lock, options.overwrite);
  if (full_every_ > 1 && !writer_.follow_changes()) {
    fail(Code::kInvalidArgument, "no table's kernel can say which of its rows change (", TSR_KERNEL_CHANGES,
         "), so that every checkpoint would hold all rows: leave out --save-full-every, or choose a kernel that does");
  }
  const bool by_time = options.save_every_minutes > 0;
  const bool in_between = by_time || options.save_every > 0;
  const int64_t planned = std::max<int64_t>(0, run.steps - run.first_step);
  writer_.check_place(by_time ? options.keep + 1 : options.save_every > 0 ? planned / options.save_every + 1 : 1);
  // On a device the copies would use the training stream, and two threads must not use its transport.
  counts_.beside_training = in_between && !options.device && writer_.reserve_copies();
}

CheckpointCounts JobCheckpoints::counts() const {
  CheckpointCounts out = counts_;
  if (out.beside_training) out.copy_bytes = writer_.copy_bytes();
  return out;
}

void JobCheckpoints::tell(const TrainSave& save) {
  ++(save.error.empty() ? counts_.saved : counts_.failed);
  if (watch_) watch_(save);
}

CheckpointRows JobCheckpoints::rows_now() {
  return begun_++ % full_every_ == 0 ? CheckpointRows::kAll : CheckpointRows::kChanged;
}

void JobCheckpoints::look_at_last(bool wait) {
  if (!writing_ || (!wait && writer_.busy())) return;
  TrainSave save = *std::exchange(writing_, std::nullopt);
  try {
    writer_.finish();
    counts_.saved_changes += writer_.rows() == CheckpointRows::kChanged ? 1 : 0;
  } catch (const Error& e) {
    if (!of_the_disk(e)) error_ = e;
    save.error = e.what();
  }
  tell(save);
}

template <class Write>
void JobCheckpoints::write(int64_t step, const Progress& progress, const Write& how) {
  const std::string text = progress();
  Stopwatch watch;
  how(text);
  TrainSave save{step, 0, ""};
  watch.lap(save.pause_s, "checkpoint");
  counts_.longest_pause_s = std::max(counts_.longest_pause_s, save.pause_s);
  writing_ = std::move(save);
}

void JobCheckpoints::after_step(int64_t step, const Progress& progress) {
  look_at_last(false);
  if (schedule_.looks(step)) save_if_due(step, progress);
}

void JobCheckpoints::while_waiting(int64_t step, const Progress& progress) {
  look_at_last(false);
  if (step != tried_step_) save_if_due(step, progress);
}

void JobCheckpoints::save_if_due(int64_t step, const Progress& progress) {
  if (!schedule_.due(step, writing_.has_value(), group_)) return;
  if (error_) throw Error(*error_);
  tried_step_ = step;
  const CheckpointRows rows = rows_now();
  if (counts_.beside_training)
    return write(step, progress, [&](const std::string& text) { writer_.start(text, rows); });
  try {
    write(step, progress, [&](const std::string& text) { writer_.save(text, rows); });
  } catch (const Error& e) {
    if (!of_the_disk(e)) throw;
    return tell({step, 0, e.what()});
  }
  look_at_last(true);
}

void JobCheckpoints::at_end(int64_t step, bool stopped, const Progress& progress) {
  if (stopped) {
    writer_.give_up();
    writing_.reset();
  }
  look_at_last(true);
  if (error_) throw Error(*error_);
  // A stopped run may save only changes, because the user waits for it. A finished run ends with a full checkpoint.
  const CheckpointRows rows = stopped ? rows_now() : CheckpointRows::kAll;
  write(step, progress, [&](const std::string& text) { writer_.save(text, rows); });
  look_at_last(true);
}

}  // namespace tessera
