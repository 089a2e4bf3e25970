// The lock of a directory that one job writes to at a time: a file in it that only its owner can open, so that nobody
// who can merely read the directory holds up a save.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace tessera::checkpoint {

inline constexpr const char* kLockFile = "tessera.lock";

class DirectoryLock {
 public:
  // Makes the directory. `use`: what the job does there, "saves to". Waits a second for a job that is about to end.
  // kUnavailable: another job has the lock; the sentence has its host, its process and since when.
  // kAlreadyExists: there is a file instead of the directory.
  DirectoryLock(const std::string& directory, const char* use);
  // Removes the lock's file, and the directory if it was made here and is empty.
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  const std::string& directory() const { return directory_; }
  // Why nothing is locked, for file systems that have no locks; empty: the lock is held.
  const std::string& warning() const { return warning_; }

 private:
  bool try_lock(const char* use);

  std::string directory_, path_, warning_;
  Descriptor fd_;
  bool made_ = false;
};

// A shared lock on an open file or directory. Whoever can read it could withhold one, so the wait is bounded; the
// caller goes on without it then.
void lock_shared(int fd);

}  // namespace tessera::checkpoint
