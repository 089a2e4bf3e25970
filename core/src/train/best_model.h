// The checkpoint of the model that validated best in a job.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/directory_lock.h"
#include "tessera/checkpoint.h"
#include "tessera/train_job.h"
#include "tessera/trainer.h"

namespace tessera {

// A folder for the best model of a job with validation.restore_best and without options.save_best: a folder beside
// options.save whose name ends in ".best-so-far", or else a temporary folder on rank 0's machine.
class BestFolder {
 public:
  // Collective. kInvalidArgument on all ranks: ranks on several hosts have no temporary folder in common.
  BestFolder(const TrainJobOptions& options, const ProcessGroup& group);
  ~BestFolder();  // removes a temporary folder
  BestFolder(const BestFolder&) = delete;
  BestFolder& operator=(const BestFolder&) = delete;

  const std::string& path() const { return path_; }
  // Removes the model, and the folder if nothing else is in it: the job has ended and will not be resumed.
  void remove();

 private:
  std::string path_;
  const bool temporary_;
  const bool first_rank_;
};

class BestModel {
 public:
  using Lock = std::shared_ptr<const checkpoint::DirectoryLock>;

  // `directory`: empty if the best model is not kept. The trainer must outlive this object.
  BestModel(std::string directory, ModelTrainer& trainer) : directory_(std::move(directory)), trainer_(trainer) {}

  // Checks that a checkpoint fits in the directory. `lock`: rank 0's lock on it. Collective.
  void check_place(const Lock& lock);
  // Replaces the saved model by that of `step`, with the run's `progress`. Returns an error of the disk in the result.
  // Collective.
  TrainSave save(int64_t step, const std::string& progress, const Lock& lock);
  // Loads the saved model into the trainer and returns its step. Unset: nothing was loaded, because there is no
  // checkpoint, it is of another run, or it is the model of `now`. Only this job's best model states the score
  // `best`. Collective.
  std::optional<int64_t> load(int64_t now, const std::string& monitor, double best);

 private:
  const std::string directory_;
  ModelTrainer& trainer_;
};

}  // namespace tessera
