// What a job publishes while it trains: [publish] in its config.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
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

  // Before step `first_step`. `beside`: PublishOptions::beside. Throws what the directory, the formats or the kernels
  // cannot. Collective.
  JobPublisher(const PublishConfig& config, ModelTrainer& trainer, int64_t first_step, bool beside, Watch watch);

  // Behind a step, when it is due: the rows that changed are copied, and written beside the steps that follow. While
  // one is being written, the next waits where it is due by time; where it is due by steps, training waits. What the
  // disk did not take is told to the watch, and part of the next one; anything else that went wrong is thrown.
  // Collective.
  void after_step(int64_t step, const Progress& progress);
  // Between two steps, while there is no batch: what the last steps have left, when it is due by time. Collective.
  void while_waiting(int64_t step, const Progress& progress);
  // What is left, behind the last one; waits for it. Collective.
  void at_end(int64_t step, const Progress& progress);

  int64_t published() const { return published_; }
  int64_t bases() const { return bases_; }
  int64_t failed() const { return failed_; }
  int64_t changed() const { return changed_; }                             // rows, in all deltas
  int64_t bytes() const { return bytes_; }                                 // of all deltas
  double longest_pause_s() const { return longest_pause_s_; }              // of training
  double longest_delta_pause_s() const { return longest_delta_pause_s_; }  // the first base's left out

 private:
  void publish(int64_t step, const Progress& progress);
  void look_at_last(bool wait);
  void tell(const TrainPublish& told);

  ModelPublisher publisher_;
  const ProcessGroup& group_;
  SaveSchedule schedule_;
  const bool by_steps_;
  int64_t published_step_ = -1;
  Watch watch_;
  int64_t published_ = 0, bases_ = 0, failed_ = 0, changed_ = 0, bytes_ = 0;
  double longest_pause_s_ = 0, longest_delta_pause_s_ = 0;
  std::optional<TrainPublish> writing_;  // started, and not told yet
  std::optional<Error> error_;           // of the thread that writes: no other will be written
};

}  // namespace tessera
