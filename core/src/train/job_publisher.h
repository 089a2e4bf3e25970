// Publishes a job's model while it trains: [publish] in its config.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/config.h"
#include "tessera/online.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"
#include "train/save_schedule.h"

namespace tessera {

class JobPublisher {
 public:
  using Progress = ModelPublisher::Progress;               // the same as for JobCheckpoints; collective
  using Watch = std::function<void(const TrainPublish&)>;  // TrainWatch::published

  // Created before step `first_step`. `beside`: PublishOptions::beside. Throws if the directory, the formats or the
  // kernels do not support it. Collective.
  JobPublisher(const PublishConfig& config, ModelTrainer& trainer, int64_t first_step, bool beside, Watch watch);

  // Called after a step. If a publication is due, copies the changed rows and writes them during the steps that follow.
  // If the previous one is still being written, one due by time is delayed, and one due by steps makes training wait.
  // Disk errors are reported to the watch, and their rows go into the next publication; other errors are thrown.
  // Collective.
  void after_step(int64_t step, const Progress& progress);
  // Called between steps while there is no batch: publishes the last steps' changes if that is due by time. Collective.
  void while_waiting(int64_t step, const Progress& progress);
  // Called after the last step: publishes the rest and waits until it is written. Collective.
  void at_end(int64_t step, const Progress& progress);

  const PublicationCounts& counts() const { return counts_; }

 private:
  void publish(int64_t step, const Progress& progress);
  void look_at_last(bool wait);
  void tell(const TrainPublish& told);

  ModelTrainer& trainer_;
  ModelPublisher publisher_;
  const ProcessGroup& group_;
  SaveSchedule schedule_;
  const bool by_steps_;
  int64_t published_step_ = -1;
  Watch watch_;
  PublicationCounts counts_;
  std::optional<TrainPublish> writing_;  // started, but not reported yet
  std::optional<Error> error_;           // from the writing thread; nothing more will be written
};

}  // namespace tessera
