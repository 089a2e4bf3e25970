// The directories that a job saves to. Rank 0 locks them until the job's last save. Checkpoints that are there already
// are continued, replaced, or a reason not to begin.
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

  // Collective. kInvalidArgument: another run's checkpoints are there and no option says what to do with them, or
  // `resume` can read none of them. kUnavailable: another job saves there.
  SaveDirectories(TrainJobOptions options, const ProcessGroup& group);

  // With `resume`: checkpoints in options.save to try, newest first, and why others are skipped.
  const std::vector<std::string>& resumable() const { return found_.whole; }
  const std::vector<std::string>& passed_over() const { return found_.broken; }
  // Throws if `resume` found checkpoints. `damaged` says why each one that was tried could not be loaded.
  void refuse_to_begin_anew(const std::vector<std::string>& damaged) const;

  // Null on ranks other than 0, and if there is no such directory.
  const Lock& save() const { return save_; }
  const Lock& best() const { return best_; }
  std::vector<std::string> warnings() const;
  // Called after the job's last save, so that another job may use the directories.
  void release() { save_.reset(), best_.reset(); }

 private:
  void check_new(const char* option, const std::string& directory, const FoundCheckpoints& found) const;

  TrainJobOptions options_;
  Lock save_, best_;
  FoundCheckpoints found_;
  std::string replaced_best_;
};

}  // namespace tessera
