// A checkpoint's directory DIR, replaced as a whole: written as DIR.saving, then DIR becomes DIR.replaced, DIR.saving
// becomes DIR, and DIR.replaced goes. Whatever is interrupted, DIR or else DIR.replaced is a whole checkpoint. Only a
// checkpoint's own files are ever deleted: others in DIR move along.
#pragma once

#include <string>

#include "checkpoint/files.h"

namespace tessera::checkpoint {

class StagedDirectory {
 public:
  // kAlreadyExists: DIR is no checkpoint and not empty. kUnavailable: another job is writing to it.
  explicit StagedDirectory(const std::string& directory);
  ~StagedDirectory();  // removes DIR.saving, unless it was committed
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  std::string file(const std::string& name) const { return staging_ + "/" + name; }
  // DIR.saving becomes DIR. Its files must be synced.
  void commit();

 private:
  std::string target_, staging_, replaced_;
  Descriptor lock_;
  bool committed_ = false;
};

// Where the files of the checkpoint `directory` are: there, or in DIR.replaced when a save was interrupted in between.
// kNotFound: no checkpoint there.
std::string whole_checkpoint(const std::string& directory);

}  // namespace tessera::checkpoint
