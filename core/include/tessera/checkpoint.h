// tessera/checkpoint.h - stores a model independently of plan and number of ranks: whole tables, optimizer state and
// dense parameters, under the names of a TorchRec state dict. docs/checkpoints.md describes the format.
//
// A directory holds the last few checkpoints, each in its own directory. A crash leaves them intact: a new one is
// renamed when it is complete, and only then the oldest is removed. All ranks write their own rows, so the directory
// must be on a file system that all hosts share. A checkpoint loads under any plan and number of ranks.
//
// Row-wise optimizers keep one value per row, and in a column-cut table one per row and cut. The same cuts get their
// values back exactly. Otherwise cuts are merged by a mean weighted by width, and split by copying.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera {

namespace checkpoint {
class DirectoryLock;
}

enum class CheckpointContent {
  kAll,
  kWeights,  // without optimizer states: for packed models; training cannot continue from it
};

enum class CheckpointRows {
  kAll,
  // Only rows that changed since the last checkpoint with all rows, which must stay beside this one. This needs kernels
  // that know their changes (abi/draft/changes.h), name the same rows for all columns, and keep no optimizer state of a
  // whole table. Other tables are stored with all rows.
  kChanged,
};

// Writes checkpoints of one model, directly or in the background of its training. Everything except busy() is
// collective and must be called by the training thread. A failure on any rank is thrown on all; none is left waiting,
// however slow the disk is. Earlier checkpoints stay intact. kUnavailable and kResourceExhausted name the path.
// kAlreadyExists: the directory holds something else. kFailedPrecondition: a weight is infinite or no number; the
// message names its table.
class CheckpointWriter {
 public:
  // Model and optimizer must outlive it. `keep`: number of whole checkpoints that stay in the directory after a new
  // one; older ones are removed unless they are being read.
  CheckpointWriter(std::string directory, DistributedModelParallel& model, const KeyedOptimizer& dense_optimizer,
                   int keep = 2, CheckpointContent content = CheckpointContent::kAll);
  ~CheckpointWriter();  // abandons an unfinished checkpoint, on any rank
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Called on rank 0 before the first save. `lock`: the job's lock on the directory; null: each save takes one.
  // `replaces`: the first whole checkpoint replaces all that were there.
  void hold(std::shared_ptr<const checkpoint::DirectoryLock> lock, bool replaces = false);
  // Checks in advance that this number of saves will fit: makes test files, and looks at the free space. Throws the
  // errors of save(). State that the dense optimizer makes in its first step is not counted.
  void check_place(int64_t saves = 1);
  // After this, kernels remember which rows change after a full checkpoint. A model can have one such writer, and one
  // ModelPublisher beside it. False, on all ranks: every table would be stored with all rows anyway.
  bool follow_changes();
  // `progress`: a JSON text that load_checkpoint() returns (epoch, position, seed, ...). The checkpoint is complete on
  // return. kChanged needs a full checkpoint by this writer that still exists; otherwise all rows are written.
  void save(const std::string& progress, CheckpointRows rows = CheckpointRows::kAll);

  // Allocates memory for copies of this rank's rows, copy_bytes() in size, which start() needs. False, on all ranks:
  // some host has too little memory.
  bool reserve_copies();
  int64_t copy_bytes() const;  // with states, 4 bytes per value
  // Copies rows and dense parameters. A thread of each rank writes them while training continues. Waits for the
  // previous checkpoint first, and throws its error instead.
  void start(const std::string& progress, CheckpointRows rows = CheckpointRows::kAll);
  bool busy() const;            // this rank has not finished writing what start() began
  void finish();                // waits for it, and throws its error
  void give_up();               // stops an unfinished checkpoint and forgets its error
  CheckpointRows rows() const;  // of the checkpoint begun last

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Does the same as CheckpointWriter::save().
void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress, int keep = 2);

// Loads the newest checkpoint in `directory`, or `directory` itself, and returns its `progress`. If it does not fit,
// nothing of the model changes. Learning rates stay the job's own. kNotFound: there is no checkpoint. kDataLoss: it is
// damaged or truncated; the error names the file. kInvalidArgument: it does not fit the model; the error names the
// first table or parameter and both shapes. kUnimplemented: it has a newer format. Collective.
std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer);

struct FoundCheckpoints {
  std::vector<std::string> whole;   // their files are there in the right sizes; the newest first
  std::vector<std::string> broken;  // a sentence for each damaged one: its path, and what is missing
  // A sentence for each that cannot be read: an I/O error, another user's files, a newer format.
  std::vector<std::string> unreadable;
  std::vector<std::string> older;  // whole, but older than the newest that cannot be read

  size_t count() const { return whole.size() + broken.size() + unreadable.size() + older.size(); }
};

// Lists the checkpoints in `directory`, for a job that continues one if there is any. It compares sizes; only
// load_checkpoint() compares checksums. `held`: rank 0's lock on the directory; null: it takes one. Collective.
FoundCheckpoints find_checkpoints(const std::string& directory, const ProcessGroup& group,
                                  const checkpoint::DirectoryLock* held = nullptr);

// Returns the `progress` of the newest checkpoint in `directory`, or of `directory` itself. Reads nothing else. Errors
// are those of load_checkpoint().
std::string saved_progress(const std::string& directory);

}  // namespace tessera
