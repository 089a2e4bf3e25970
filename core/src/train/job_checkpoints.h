// The checkpoints of a job in its --save directory: tried before the first step, written while it trains and at its
// end.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tessera/checkpoint.h"
#include "tessera/model_trainer.h"
#include "tessera/train_job.h"
#include "train/save_schedule.h"

namespace tessera {

class JobCheckpoints {
 public:
  using Progress = std::function<std::string()>;        // what a checkpoint says of the run; collective
  using Watch = std::function<void(const TrainSave&)>;  // TrainWatch::saved

  struct Run {
    int64_t first_step = 0, steps = 0;                      // done before it, and in all at its end
    std::shared_ptr<const checkpoint::DirectoryLock> lock;  // on the directory, of rank 0
  };

  // Throws what the directory cannot take. Collective.
  JobCheckpoints(const TrainJobOptions& options, ModelTrainer& trainer, const Run& run, Watch watch);

  // Behind a step that is not the last one. What the disk did not take is told to the watch; anything else that went
  // wrong is thrown, by all ranks at once. Collective.
  void after_step(int64_t step, const Progress& progress);
  // Between two steps, while there is no batch: the checkpoint of the last one, when it is due. Collective.
  void while_waiting(int64_t step, const Progress& progress);
  // Behind the last one. A run that was asked to end waits for no checkpoint but this one.
  void at_end(int64_t step, bool stopped, const Progress& progress);

  void release() { writer_.hold(nullptr); }  // the lock on the directory

  bool beside() const { return beside_; }  // training goes on meanwhile
  int64_t copy_bytes() const { return beside_ ? writer_.copy_bytes() : 0; }
  double longest_pause_s() const { return longest_pause_s_; }
  int64_t saved() const { return saved_; }
  int64_t failed() const { return failed_; }
  int64_t saved_changes() const { return saved_changes_; }  // of those saved, without rows that had not changed

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
  bool beside_ = false;
  int64_t tried_step_ = -1;           // that the last checkpoint was begun behind
  std::optional<TrainSave> writing_;  // beside training, on this rank
  std::optional<Error> error_;        // of one that was
  double longest_pause_s_ = 0;
  const int64_t full_every_;
  int64_t begun_ = 0, saved_ = 0, failed_ = 0, saved_changes_ = 0;
};

}  // namespace tessera
