// What a job publishes while it trains: [publish] in its config.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/config.h"
#include "tessera/model_trainer.h"
#include "tessera/online.h"
#include "tessera/train_job.h"
#include "train/save_schedule.h"

namespace tessera {

class JobPublisher {
 public:
  using Progress = ModelPublisher::Progress;               // as of JobCheckpoints; collective
  using Watch = std::function<void(const TrainPublish&)>;  // TrainWatch::published

  // Before step `first_step`. Throws what the directory, the formats or the kernels cannot. Collective.
  JobPublisher(const PublishConfig& config, ModelTrainer& trainer, int64_t first_step, Watch watch);

  // Behind a step, when it is due. What the disk did not take is told to the watch, and part of the next one; anything
  // else that went wrong is thrown. Collective.
  void after_step(int64_t step, const Progress& progress);
  // What is left, behind the last one.
  void at_end(int64_t step, const Progress& progress) { publish(step, progress); }

  int64_t published() const { return published_; }
  int64_t bases() const { return bases_; }
  int64_t failed() const { return failed_; }
  int64_t changed() const { return changed_; }  // rows, in all deltas
  int64_t bytes() const { return bytes_; }      // of all deltas
  double longest_pause_s() const { return longest_pause_s_; }

 private:
  void publish(int64_t step, const Progress& progress);

  ModelPublisher publisher_;
  const ProcessGroup& group_;
  SaveSchedule schedule_;
  Watch watch_;
  int64_t published_ = 0, bases_ = 0, failed_ = 0, changed_ = 0, bytes_ = 0;
  double longest_pause_s_ = 0;
};

}  // namespace tessera
