// A directory of publications as the one writes it who has it to himself: what is left over goes, what is too old goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/directory_lock.h"
#include "checkpoint/files.h"

namespace tessera::publishing {

class PublishDirectory {
 public:
  // Makes it. What a run that was killed left half done is removed. kAlreadyExists: it holds something else;
  // kUnavailable: another job publishes there. What cannot be looked at stays.
  explicit PublishDirectory(const std::string& path);

  const std::string& path() const { return path_; }
  std::string at(const std::string& name) const { return path_ + "/" + name; }
  int64_t last() const;  // the highest number of a publication; 0: none
  // Keeps so many bases, and the deltas behind the oldest; a base that is being followed stays, too.
  void prune(int keep_bases) const;
  // Removes what is no publication: one that is not whole, or the floats that it is made of.
  void clear(const std::string& name) const;

 private:
  std::string path_;
  std::optional<checkpoint::DirectoryLock> lock_;
};

// Keeps a base from being removed while it lives (on file systems that lock).
checkpoint::Descriptor hold_base(const std::string& path);

}  // namespace tessera::publishing
