// The lock of a directory that one job at a time writes to. It is a file that only its owner can open, so that users
// who can only read the directory cannot block a save.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace tessera::checkpoint {

inline constexpr const char* kLockFile = "tessera.lock";

class DirectoryLock {
 public:
  // Makes the directory. `use` names the job's purpose: "saves to". Waits a second for a job that is about to end.
  // kUnavailable: another job has the lock; the message has its host, its process and since when. kAlreadyExists: a
  // file has the name of the directory.
  DirectoryLock(const std::string& directory, const char* use);
  // Removes the lock's file, and the directory if this object made it and it is empty.
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  const std::string& directory() const { return directory_; }
  // The reason why nothing is locked, on file systems without locks; empty: the lock is held.
  const std::string& warning() const { return warning_; }

 private:
  bool try_lock(const char* use);

  std::string directory_, path_, warning_;
  Descriptor fd_;
  bool made_ = false;
};

// Takes a shared lock on an open file or directory. Anybody who can read it could hold another lock, so the wait is
// bounded; after that the caller goes on without one.
void lock_shared(int fd);

}  // namespace tessera::checkpoint
