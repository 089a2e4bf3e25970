// tessera/trainer.h - what a training loop drives: a model over sharded tables, and what updates it.
//
// ModelTrainer (tessera/model_trainer.h) is one. A program with a model of its own writes another one: step() and
// take_losses() are all that training needs, predict() what evaluation needs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"
#include "tessera/head_metrics.h"
#include "tessera/process_group.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// The parts of a step's time, in seconds on this rank, in the order of a step.
using Stages = std::vector<std::pair<std::string, double>>;

// Used by one thread.
class Trainer {
 public:
  virtual ~Trainer() = default;

  // Forward, backward, updates: one step of all ranks, whatever their shares of the global batch, of which one may be
  // empty. `taken`: what TrainPipeline has made of the batch, where it has. True: some rank has said `finished` with
  // this batch, here or to the pipeline. Collective.
  virtual bool step(const Batch& batch, StepHandle taken, bool finished) = 0;
  bool step(const Batch& batch) { return step(batch, {}, false); }
  // The sums of this rank's losses over its samples, one for each step since the last call. May wait for a device.
  virtual std::vector<double> take_losses() = 0;
  // The values that predict() gives; unless overridden one logit of the first label.
  virtual std::vector<Prediction> predictions() const { return {{}}; }
  // Each of predictions(), [B, 1] of this rank's batch, in host memory, valid until the next call. Collective.
  // kUnimplemented unless overridden.
  virtual std::vector<Tensor> predict(const Batch& batch);

  // From now on step() calls it with what predict() would have given of each batch that has samples here before the
  // step learned from it; null: no more. kUnimplemented unless overridden.
  using Observer = std::function<void(const std::vector<Tensor>& scores, const Batch& batch)>;
  virtual void observe(const Observer& observer);

  virtual const ProcessGroup& group() const = 0;
  // The tables whose ids a pipeline exchanges ahead of the step.
  virtual ShardedEmbeddingBagCollection& embeddings() = 0;
  // Waits for what steps have enqueued on a device.
  virtual void synchronize() {}
  // Spans of a step's stages from now on; nullptr: none.
  virtual void set_trace(Trace* trace) { embeddings().set_trace(trace); }
};

}  // namespace tessera
