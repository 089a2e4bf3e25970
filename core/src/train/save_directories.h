// The directories that a job saves to: rank 0 holds them until the job has saved for the last time, and what is there
// before the job begins is gone on with, replaced, or a reason not to begin.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/directory_lock.h"
#include "tessera/checkpoint.h"
#include "tessera/process_group.h"
#include "tessera/train_job.h"

namespace tessera {

class SaveDirectories {
 public:
  using Lock = std::shared_ptr<const checkpoint::DirectoryLock>;

  // Collective. kInvalidArgument: another run's checkpoints are there, and no option says what becomes of them; or with
  // `resume` none of them can be read. kUnavailable: another job saves there.
  SaveDirectories(const TrainJobOptions& options, const ProcessGroup& group);

  // With `resume`: those in options.save to try, the newest first, and why others are passed over.
  const std::vector<std::string>& resumable() const { return found_.whole; }
  const std::vector<std::string>& passed_over() const { return found_.broken; }
  // Throws if `resume` found checkpoints. `damaged`: why each one that was tried could not be loaded.
  void refuse_to_begin_anew(const std::vector<std::string>& damaged) const;

  // Null where there is no such directory, and on other ranks than 0.
  const Lock& save() const { return save_; }
  const Lock& best() const { return best_; }
  std::vector<std::string> warnings() const;
  // Once the job has saved for the last time: another job may have the directories.
  void release() { save_.reset(), best_.reset(); }

 private:
  void check_new(const char* option, const std::string& directory, const FoundCheckpoints& found) const;

  const TrainJobOptions& options_;
  Lock save_, best_;
  FoundCheckpoints found_;
  std::string replaced_best_;
};

}  // namespace tessera
