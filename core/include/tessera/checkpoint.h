// tessera/checkpoint.h - a model on disk, independent of plan and number of ranks: whole tables, optimizer state, dense
// parameters, under the names of a TorchRec state dict. Format: docs/checkpoints.md.
//
// A directory holds the last few, each in a directory of its own. Safe against crashes: a new one is written there and
// renamed when it is whole, and only then the oldest goes. Loading works under any plan and number of ranks. Optimizer
// state kept once per row (row-wise optimizers) of a column-cut table exists once per cut: the same cuts get theirs
// back exactly; otherwise cuts are merged by the mean weighted by width, and split by copying.
#pragma once

#include <string>

#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera {

// Collective. `progress`: a JSON text that the caller gets back (epoch, position, seed, ...). Every rank learns of a
// failure on any rank; none is left waiting, however slow the disk. kUnavailable and kResourceExhausted name the path;
// kAlreadyExists: the directory holds something else; kFailedPrecondition: a weight is infinite or no number, and its
// table is named. `keep`: how many checkpoints may be in the directory then; the oldest go, but for those being read.
void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress, int keep = 2);

// Collective. Whether `saves` calls of save_checkpoint() will find a place, as far as that can be known before there is
// something to save: tries to make files there, and looks for room. Throws what save_checkpoint() would. State that the
// dense optimizer makes in its first step is not counted.
void check_checkpoint_target(const std::string& directory, DistributedModelParallel& model,
                             const KeyedOptimizer& dense_optimizer, int64_t saves = 1, int keep = 2);

// Collective. Of the newest checkpoint in `directory`, or of itself. Returns `progress`. kNotFound: no checkpoint
// there. kDataLoss: damaged or truncated, the file is named. kInvalidArgument: it does not fit the model: the sentence
// names the first table or parameter and both shapes. kUnimplemented: of a newer format. Nothing of the model changes
// unless everything fits. Rates stay the job's own.
std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer);

// `progress` of the newest checkpoint in `directory`, or of itself; nothing else is read. Errors as load_checkpoint().
std::string saved_progress(const std::string& directory);

}  // namespace tessera
