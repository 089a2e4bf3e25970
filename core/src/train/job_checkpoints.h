// The checkpoints of a job in its --save directory. The directory is checked before the first step, and written during
// training and at its end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"
#include "train/save_schedule.h"

namespace tessera {

class JobCheckpoints {
 public:
  using Progress = std::function<std::string()>;        // the run's state as text; collective
  using Watch = std::function<void(const TrainSave&)>;  // TrainWatch::saved

  struct Run {
    int64_t first_step = 0, steps = 0;                      // steps done before the run, and in all at its end
    std::shared_ptr<const checkpoint::DirectoryLock> lock;  // lock on the directory, on rank 0
  };

  // Throws if the directory cannot be written. Collective.
  JobCheckpoints(const TrainJobOptions& options, ModelTrainer& trainer, const Run& run, Watch watch);

  // Called after each step except the last. Disk errors are reported to the watch; all ranks throw other errors.
  // Collective.
  void after_step(int64_t step, const Progress& progress);
  // Called between steps while there is no batch: saves the last step if a checkpoint is due. Collective.
  void while_waiting(int64_t step, const Progress& progress);
  // Called after the last step. If the run was asked to end, only this checkpoint is waited for.
  void at_end(int64_t step, bool stopped, const Progress& progress);

  void release() { writer_.hold(nullptr); }  // the lock on the directory

  CheckpointCounts counts() const;

 private:
  void save_if_due(int64_t step, const Progress& progress);
  CheckpointRows rows_now();
  template <class Write>
  void write(int64_t step, const Progress& progress, const Write& how);
  void look_at_last(bool wait);  // on this rank
  void tell(const TrainSave& save);

  CheckpointWriter writer_;
  const ProcessGroup& group_;
  SaveSchedule schedule_;
  Watch watch_;
  int64_t tried_step_ = -1;           // the step of the last checkpoint begun
  std::optional<TrainSave> writing_;  // being written in the background, on this rank
  std::optional<Error> error_;        // of the last background save
  const int64_t full_every_;
  int64_t begun_ = 0;
  CheckpointCounts counts_;  // without copy_bytes
};

}  // namespace tessera
