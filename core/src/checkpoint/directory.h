// A directory DIR of checkpoints: DIR/save-1, DIR/save-2 and so on, each a whole one, the newest with the highest
// number. A new one is written as DIR/save-N.saving and gets its name by one rename; old ones go only after that. So
// whatever is interrupted, those before are whole; and all of it happens inside DIR, which may be a mount point.
//
// One that holds the rows that changed since another (Manifest::base) needs that one: it stays as long.
//
// An error while a checkpoint is looked at says nothing about it. Only what is proven damaged is passed over, and what
// cannot be read is never removed: neither it, nor anything older, which may be its base.
//
// Versions before wrote the files of their only checkpoint into DIR itself: that one is read too, and counts as the
// oldest. Nothing but the files of checkpoints is ever removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/directory_lock.h"
#include "checkpoint/files.h"
#include "checkpoint/manifest.h"
#include "tessera/checkpoint.h"

namespace tessera::checkpoint {

class StagedCheckpoint {
 public:
  // Makes DIR and DIR/save-N.saving; what an interrupted save left there goes, or becomes a checkpoint where it is a
  // whole one. `held`: the caller's lock on DIR, which lives longer; null: locked while this lives.
  // kAlreadyExists: DIR is in use for something else. kUnavailable: another job saves there.
  explicit StagedCheckpoint(const std::string& directory, const DirectoryLock* held = nullptr);
  ~StagedCheckpoint();  // without commit() nothing is left, DIR neither if it was made here
  StagedCheckpoint(const StagedCheckpoint&) = delete;
  StagedCheckpoint& operator=(const StagedCheckpoint&) = delete;

  const std::string& path() const { return staging_; }
  std::string name() const;  // that it will have: "save-4"
  std::string file(const std::string& name) const { return staging_ + "/" + name; }
  // kResourceExhausted: there is no room for `saves` checkpoints of `bytes` each, of which `keep` are kept.
  void check_space(int64_t bytes, int64_t saves, int keep) const;
  // Puts the checkpoint in its place, then removes the oldest until `keep` whole ones are left; ones that are being
  // read stay for now, and so do bases of those that are left. Broken ones go with the whole ones before them. Its
  // files must be synced. Where only its renaming fails, they stay and the error says where.
  void commit(int keep);

 private:
  void tidy(int64_t* last) const;
  void remove_old(int keep) const;
  std::optional<DirectoryLock> own_lock_;
  std::string directory_, staging_, name_;
  bool left_ = false;
};

// A whole checkpoint that is not removed while this lives (on file systems that lock).
struct HeldCheckpoint {
  std::string path;  // of the directory with its files
  Descriptor lock;
};

// `directory` itself where it has the files of a checkpoint, or else the newest in it. kNotFound: there is none.
HeldCheckpoint hold_checkpoint(const std::string& directory);
// The base of the checkpoint whose files are in `path`. kDataLoss: it is not there, or is another one.
HeldCheckpoint hold_base(const std::string& path, const Manifest::Base& base);
// False: it is not there, or is another one. Throws where that cannot be told.
bool has_base(const std::string& path, const Manifest::Base& base);
bool has_checkpoint(const std::string& directory);
// Whole: all in `directory` whose files, and those of their bases, are there in the sizes that they should have; one
// that a killed job had all but renamed gets its name. `held`: as for StagedCheckpoint.
FoundCheckpoints find_checkpoints(const std::string& directory, const DirectoryLock* held = nullptr);

}  // namespace tessera::checkpoint
