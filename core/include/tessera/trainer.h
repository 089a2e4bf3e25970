// tessera/trainer.h - the interface of a training loop to a model over sharded tables.
//
// ModelTrainer (tessera/model_trainer.h) implements it. A program with its own model writes another one: training needs
// step() and take_losses(), evaluation needs predict().
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// Time of a step's stages, in seconds on this rank, in step order.
using Stages = std::vector<std::pair<std::string, double>>;

// Used by one thread.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Runs one step of all ranks: forward, backward, updates. Ranks may have shares of any size, even empty ones.
  // `taken`: TrainPipeline's work on the batch, if any. True: some rank has said `finished` with this batch, here or to
  // the pipeline. Collective.
  virtual bool step(const Batch& batch, StepHandle taken, bool finished) = 0;
  bool step(const Batch& batch) { return step(batch, {}, false); }
  // The sums of this rank's losses over its samples, one per step since the last call. May wait for a device.
  virtual std::vector<double> take_losses() = 0;
  // The values that predict() gives; by default one logit of the first label.
  virtual std::vector<Prediction> predictions() const { return {{}}; }
  // Returns the values of predictions(), [B, 1] each for this rank's batch, in host memory, valid until the next call.
  // Collective. kUnimplemented: not overridden.
  virtual std::vector<Tensor> predict(const Batch& batch);

  // After this, step() calls `observer` for each batch that has samples here, with the values that predict() would give
  // before the step. Null: stops that. kUnimplemented: not overridden.
  using Observer = std::function<void(const std::vector<Tensor>& scores, const Batch& batch)>;
  virtual void observe(const Observer& observer);

  virtual const ProcessGroup& group() const = 0;
  // The tables whose ids a pipeline exchanges ahead of the step.
  virtual ShardedEmbeddingBagCollection& embeddings() = 0;
  // Waits for steps' work on a device.
  virtual void synchronize() {}
  // Records spans of a step's stages; nullptr: none.
  virtual void set_trace(Trace* trace) { embeddings().set_trace(trace); }
};

}  // namespace tessera
