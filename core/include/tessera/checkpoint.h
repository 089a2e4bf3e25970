// tessera/checkpoint.h - a model on disk, independent of plan and number of ranks: whole tables, optimizer state, dense
// parameters, under the names of a TorchRec state dict. Format: docs/checkpoints.md.
//
// Safe against crashes: written beside the target and renamed, so that the old checkpoint stays until the new one is
// whole. Loading works under any plan and number of ranks. Optimizer state kept once per row (row-wise optimizers) of a
// column-cut table exists once per cut: the same cuts get theirs back exactly; otherwise cuts are merged by the mean
// weighted by width, and split by copying.
#pragma once

#include <string>

#include "tessera/distributed_model_parallel.h"
#include "tessera/optim.h"

namespace tessera {

// Collective. `progress`: a JSON text that the caller gets back (epoch, position, seed, ...). Every rank learns of a
// failure on any rank; none is left waiting. kUnavailable and kResourceExhausted name the path; kAlreadyExists: the
// directory holds something else.
void save_checkpoint(const std::string& directory, DistributedModelParallel& model,
                     const KeyedOptimizer& dense_optimizer, const std::string& progress);

// Collective. Returns `progress`. kNotFound: no checkpoint there. kDataLoss: damaged or truncated, the file is named.
// kInvalidArgument: it does not fit the model: the sentence names the first table or parameter and both shapes.
// kUnimplemented: of a newer format. Nothing of the model changes unless everything fits. Rates stay the job's own.
std::string load_checkpoint(const std::string& directory, DistributedModelParallel& model,
                            KeyedOptimizer& dense_optimizer);

}  // namespace tessera
