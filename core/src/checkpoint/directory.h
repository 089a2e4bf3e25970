// A directory DIR of checkpoints: DIR/save-1, DIR/save-2 and so on. Each is complete, and the newest has the highest
// number. A new one is written as DIR/save-N.saving and renamed once it is complete; old ones are removed only after
// that. So an interruption never harms an earlier checkpoint. All of it happens inside DIR, which may be a mount point.
//
// A checkpoint with only the rows that changed since another one (Manifest::base) needs that one, which stays as long.
//
// An I/O error says nothing about a checkpoint. Only proven damage makes a reader skip one. A checkpoint that cannot be
// read is never removed, nor is anything older, which may be its base.
//
// Earlier versions wrote the files of their only checkpoint into DIR itself. That one is still read, and counts as the
// oldest. Only files of checkpoints are ever removed.
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
  // Makes DIR and DIR/save-N.saving. Remains of an interrupted save are removed, or renamed to a checkpoint if they are
  // complete. `held` is the caller's lock on DIR and must outlive this; null: locks DIR itself. kAlreadyExists: DIR is
  // in use for something else. kUnavailable: another job saves there.
  explicit StagedCheckpoint(const std::string& directory, const DirectoryLock* held = nullptr);
  ~StagedCheckpoint();  // removes what was not committed, and DIR if it made it
  StagedCheckpoint(const StagedCheckpoint&) = delete;
  StagedCheckpoint& operator=(const StagedCheckpoint&) = delete;

  const std::string& path() const { return staging_; }
  std::string name() const;  // its final name: "save-4"
  std::string file(const std::string& name) const { return staging_ + "/" + name; }
  // kResourceExhausted: there is not enough space for `saves` checkpoints of `bytes` each, if `keep` of them stay.
  void check_space(int64_t bytes, int64_t saves, int keep) const;
  // Renames the checkpoint, then removes the oldest until `keep` whole ones are left. Those that are being read stay
  // for now, and so do bases of others. Damaged ones go together with the whole one before
  // them. Its files must be synced before the call. If only the renaming fails, they stay and the error says where.
  void commit(int keep);

 private:
  void tidy(int64_t* last) const;
  void remove_old(int keep) const;
  std::optional<DirectoryLock> own_lock_;
  std::string directory_, staging_, name_;
  bool left_ = false;
};

// A whole checkpoint that is not removed while this lives (if the file system supports locks).
struct HeldCheckpoint {
  std::string path;  // the directory with its files
  Descriptor lock;
};

// Holds `directory` itself if it has the files of a checkpoint, else the newest one in it. kNotFound: there is none.
HeldCheckpoint hold_checkpoint(const std::string& directory);
// Holds the base of the checkpoint in `path`. kDataLoss: it is missing, or it is another checkpoint.
HeldCheckpoint hold_base(const std::string& path, const Manifest::Base& base);
// False: the base is missing, or it is another checkpoint. Throws if that cannot be told.
bool has_base(const std::string& path, const Manifest::Base& base);
bool has_checkpoint(const std::string& directory);
// A checkpoint is whole if its files and those of its base are there in the right sizes. One that a killed job had not
// renamed yet is renamed. `held` is the same as for StagedCheckpoint.
FoundCheckpoints find_checkpoints(const std::string& directory, const DirectoryLock* held = nullptr);
// Removes the checkpoints in DIR and the remains of interrupted saves, then DIR if it is empty. Foreign files stay, and
// so does a checkpoint that somebody reads. The caller has no lock on DIR any more.
void remove_checkpoints(const std::string& directory);

}  // namespace tessera::checkpoint
