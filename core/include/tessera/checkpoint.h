// tessera/checkpoint.h - a model on disk, independent of plan and number of ranks: whole tables, optimizer state, dense
// parameters, under the names of a TorchRec state dict. Format: docs/checkpoints.md.
//
// A directory holds the last few, each in a directory of its own. Safe against crashes: a new one is written there and
// renamed when it is whole, and only then the oldest goes. All ranks write, each its rows, so the directory is on a
// file system that all hosts see. Loading works under any plan and number of ranks. Optimizer state kept once per row
// (row-wise optimizers) of a column-cut table exists once per cut: the same cuts get theirs back exactly; otherwise
// cuts are merged by the mean weighted by width, and split by copying.
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
  kWeights,  // without optimizer states: nothing goes on from it, and packed models are made of it
};

enum class CheckpointRows {
  kAll,
  // Those that have changed since the last one with all rows, which this one needs beside it: of tables whose kernels
  // know it (abi/draft/changes.h), and name the same rows for all columns of them, and whose optimizers have no state
  // of a whole table; the others have all theirs.
  kChanged,
};

// Writes checkpoints of one model, at once or beside its training. All but busy() is collective, and used by the thread
// that trains. Every rank learns of a failure on any rank; none is left waiting, however slow the disk; the checkpoints
// before are whole after any. kUnavailable and kResourceExhausted name the path; kAlreadyExists: the directory holds
// something else; kFailedPrecondition: a weight is infinite or no number, and its table is named.
class CheckpointWriter {
 public:
  // Model and optimizer live longer. `keep`: how many whole checkpoints stay in the directory when one has been added;
  // older ones go, but for those being read.
  CheckpointWriter(std::string directory, DistributedModelParallel& model, const KeyedOptimizer& dense_optimizer,
                   int keep = 2, CheckpointContent content = CheckpointContent::kAll);
  ~CheckpointWriter();  // any rank's: gives up what is being written
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // On rank 0, before the first save: the lock that its job holds on the directory, null for one that is taken for each
  // save. `replaces`: the first checkpoint that is whole takes the place of all that were there.
  void hold(std::shared_ptr<const checkpoint::DirectoryLock> lock, bool replaces = false);
  // Checks, as far as that can be known beforehand, that there is room for this number of saves: tries to make
  // files there, and looks for room. Throws what save() would. State that the dense optimizer makes in its first step
  // is not counted.
  void check_place(int64_t saves = 1);
  // From here on the kernels remember which rows change behind a checkpoint with all rows, for one writer of a model,
  // and beside it for one ModelPublisher. False, on all ranks: every table would have all its rows anyway.
  bool follow_changes();
  // `progress`: a JSON text that the caller gets back (epoch, position, seed, ...). It is all there on return.
  // kChanged: where this writer has written one with all rows, and that is there; all rows otherwise.
  void save(const std::string& progress, CheckpointRows rows = CheckpointRows::kAll);

  // Takes memory for copies of the rows that this rank stores, copy_bytes(), which start() needs. False, on all ranks:
  // some host has too little.
  bool reserve_copies();
  int64_t copy_bytes() const;  // states included, 4 bytes a value
  // Copies rows and dense parameters aside; a thread of each rank writes them while the model goes on changing. Waits
  // for the one before, and throws its error instead.
  void start(const std::string& progress, CheckpointRows rows = CheckpointRows::kAll);
  bool busy() const;            // what start() began is not written yet, on this rank
  void finish();                // waits until it is, and throws its error
  void give_up();               // stops it, where it is not whole yet, and forgets its error
  CheckpointRows rows() const;  // of the one that was begun last

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// save() of a writer, and check_place().
void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress, int keep = 2);
void check_checkpoint_target(const std::string& directory, DistributedModelParallel& model,
                             const KeyedOptimizer& dense_optimizer, int64_t saves = 1, int keep = 2);

// Collective. Of the newest checkpoint in `directory`, or of itself. Returns `progress`. kNotFound: no checkpoint
// there. kDataLoss: damaged or truncated, the file is named. kInvalidArgument: it does not fit the model: the sentence
// names the first table or parameter and both shapes. kUnimplemented: of a newer format. Nothing of the model changes
// unless everything fits. Rates stay the job's own.
std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer);

struct FoundCheckpoints {
  std::vector<std::string> whole;   // those whose files are there in their sizes, the newest first
  std::vector<std::string> broken;  // of each damaged one a sentence: its path, and what is missing
  // One sentence for each that cannot be read: an I/O error, another user's files, a newer format.
  std::vector<std::string> unreadable;
  std::vector<std::string> older;  // whole, and older than the newest that cannot be read

  size_t count() const { return whole.size() + broken.size() + unreadable.size() + older.size(); }
};

// Collective. Those in `directory`: for a job that goes on with one, or begins where there is none. load_checkpoint()
// compares sums, too. `held`: rank 0's lock on it, null for one that is taken meanwhile.
FoundCheckpoints find_checkpoints(const std::string& directory, const ProcessGroup& group,
                                  const checkpoint::DirectoryLock* held = nullptr);

// `progress` of the newest checkpoint in `directory`, or of itself; nothing else is read. Errors as load_checkpoint().
std::string saved_progress(const std::string& directory);

}  // namespace tessera
