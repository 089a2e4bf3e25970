// A directory of publications with its exclusive writer, who removes remains and old publications.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/directory_lock.h"
#include "checkpoint/files.h"

namespace tessera::publishing {

class PublishDirectory {
 public:
  // Makes the directory, and removes unfinished files of a killed run. Files that cannot be looked at stay.
  // kAlreadyExists: it holds something else. kUnavailable: another job publishes there.
  explicit PublishDirectory(const std::string& path);

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  int64_t last() const;  // the highest number of a publication; 0: none
  // Keeps `keep_bases` bases and the deltas after the oldest of them. A base that is being followed also stays.
  void prune(int keep_bases) const;
  // Removes an incomplete publication, or the float rows that it is made from.
  void clear(const std::string& name) const;

 private:
  std::string path_;
  std::optional<checkpoint::DirectoryLock> lock_;
};

// Protects a base from removal while the result lives (if the file system supports locks).
checkpoint::Descriptor hold_base(const std::string& path);

}  // namespace tessera::publishing
