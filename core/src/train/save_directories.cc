#include "train/save_directories.h"

#include <utility>

#include "checkpoint/together.h"
#include "tessera/error.h"
#include "train/saved_run.h"

namespace tessera {
namespace {

SaveDirectories::Lock locked(const std::string& directory, const ProcessGroup& group) {
  SaveDirectories::Lock lock;
  checkpoint::together_at_length(group, "lock of a directory", [&] {
    if (group.rank() == 0) lock = std::make_shared<const checkpoint::DirectoryLock>(directory, "saves to");
    return std::string();
  });
  return lock;
}

// Returns ", the newest of step 400"; empty if the step is unknown.
std::string newest_step(const FoundCheckpoints& found) {
  const std::vector<std::string>& whole = found.whole.empty() ? found.older : found.whole;
  if (whole.empty()) return "";
  try {
    const std::optional<int64_t> step = saved_step(saved_progress(whole.front()));
    return step ? str_cat(", the newest of step ", *step) : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

SaveDirectories::SaveDirectories(TrainJobOptions options, const ProcessGroup& group) : options_(std::move(options)) {
  if (!options_.save.empty()) {
    save_ = locked(options_.save, group);
    found_ = find_checkpoints(options_.save, group, save_.get());
    if (!options_.resume) {
      check_new("--save", options_.save, found_);
      found_ = {};
    }
    if (found_.whole.empty()) refuse_to_begin_anew(found_.broken);
  }
  if (options_.save_best.empty()) return;
  best_ = locked(options_.save_best, group);
  const FoundCheckpoints found = find_checkpoints(options_.save_best, group, best_.get());
  check_new("--save-best", options_.save_best, found);
  // It may be the best checkpoint of a run that was killed before its first save, or of another run.
  if (options_.resume && found_.count() == 0 && options_.load.empty() && found.count() > 0) {
    replaced_best_ = str_cat(options_.save_best, " holds the best checkpoint of an earlier run", newest_step(found),
                             ", which the first validation of this one replaces");
  }
}

void SaveDirectories::check_new(const char* option, const std::string& directory, const FoundCheckpoints& found) const {
  if (options_.resume || !options_.load.empty() || options_.overwrite || found.count() == 0) return;
  const bool one = found.count() == 1;
  fail(Code::kInvalidArgument, option, ' ', directory, " holds ", found.count(), one ? " checkpoint" : " checkpoints",
       " of another run", newest_step(found),
       ": continue with that run (--resume), begin with a model of it (--load), replace it (--overwrite; in Python "
       "overwrite=True), or name another directory");
}

void SaveDirectories::refuse_to_begin_anew(const std::vector<std::string>& damaged) const {
  if (found_.count() == 0) return;
  std::string reasons;
  for (const auto* list : {&found_.unreadable, &damaged}) {
    for (const std::string& reason : *list) reasons += str_cat(reasons.empty() ? "" : "; ", reason);
  }
  fail(Code::kInvalidArgument, "--resume cannot read a ", found_.older.empty() ? "" : "newer ", "checkpoint in ",
       options_.save, " and does not start again: ", reasons, ". Nothing was changed: repair it, continue from ",
       found_.older.empty() ? std::string("another checkpoint") : found_.older.front(),
       " with --load, or start again in an empty directory, or with --overwrite instead of --resume");
}

std::vector<std::string> SaveDirectories::warnings() const {
  std::vector<std::string> out;
  for (const Lock& lock : {save_, best_}) {
    if (lock && !lock->warning().empty()) out.push_back(lock->warning());
  }
  if (!replaced_best_.empty()) out.push_back(replaced_best_);
  return out;
}

}  // namespace tessera
