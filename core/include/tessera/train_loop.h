// tessera/train_loop.h - the loop of a job: steps of a Trainer, fed by a pipeline, until they are done or some rank
// wants to end, with callbacks between steps.
//
//   TrainLoop loop(trainer, in_epochs(BatchReader(data.train, {...})), {
//       .steps = 1000, .stop = StopSignals::requested,
//       .after_step = [&](TrainLoop& loop, const StepEnd& end) {
//         if (end.step % 100 == 0) std::cout << end.step << ": " << loop.mean_loss() << '\n';
//         if (end.step % 500 == 0) save_checkpoint(...);
//       }});
//   loop.run();
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <vector>

#include "tessera/metrics.h"
#include "tessera/train_pipeline.h"
#include "tessera/trainer.h"

namespace tessera {

class TrainLoop;

// The end of a step.
struct StepEnd {
  int64_t step = 0;    // number of steps done, including those before this run
  const Batch& batch;  // its batch on this rank
  bool last = false;   // no step follows in this run
};

struct TrainLoopOptions {
  int64_t first_step = 0, steps = 0;  // trains steps [first_step, steps); first_step are already done
  bool ahead = false;                 // TrainPipelineOptions::ahead
  // [any-thread] Called before each step; true: this rank wants to end. All ranks end after the same step.
  std::function<bool()> stop = nullptr;
  // Called by all ranks in the same order, so it may be collective: reports, checkpoints, evaluation. An exception ends
  // the run.
  std::function<void(TrainLoop&, const StepEnd&)> after_step = nullptr;
  // Number of newest losses that losses() has at least. mean_loss() drops older ones, for endless runs.
  size_t keep_losses = std::numeric_limits<size_t>::max() / 2;
  Trace* step_trace = nullptr;   // spans of the steps
  Trace* input_trace = nullptr;  // spans of the pipeline; a separate trace, because it may have its own thread
};

// Used by one thread. All calls except plain getters are collective.
class TrainLoop {
 public:
  TrainLoop(Trainer& trainer, ReadBatch read, TrainLoopOptions options);

  // Runs to the last step, a stop, or a batch without samples. Call it once. A read error on one rank ends the run on
  // all. kFailedPrecondition: see check_losses().
  void run();
  // Mean of the losses over ranks and samples since the last call; 0: there was no step. Reads the losses.
  double mean_loss();
  // Checks the losses of new steps on all ranks. kFailedPrecondition, on all ranks: one is infinite or NaN. run() does
  // not call it, because on a device it waits; callers that report or save do.
  void check_losses();

  bool stopped() const { return stopped_; }                      // `stop` of some rank returned true
  int64_t steps_done() const { return steps_done_; }             // in this run
  int64_t samples() const { return samples_; }                   // of all ranks, in this run
  const std::vector<double>& losses() const { return losses_; }  // of the steps checked so far
  // Seconds of run() on this rank: in all, reading in the pipeline, and waiting for the pipeline.
  double seconds() const { return seconds_; }
  double read_s() const { return read_s_; }
  double waited_s() const { return waited_s_; }

 private:
  void train(TrainPipeline& inputs);

  Trainer& trainer_;
  ReadBatch read_;
  TrainLoopOptions options_;
  std::deque<int64_t> batch_sizes_;  // over all ranks, for steps that check_losses() has not seen
  int64_t steps_done_ = 0, looked_at_ = 0;
  std::vector<double> losses_;
  size_t told_ = 0;  // number of losses that mean_loss() has reported
  bool stopped_ = false;
  int64_t samples_ = 0;
  double seconds_ = 0, read_s_ = 0, waited_s_ = 0;
};

// Evaluates the model on the reader's remaining samples. All ranks need readers of the same shape; the result is the
// same on all. `metrics`: for trainer.predictions(), without samples yet. `seen`: called with each batch. Collective.
MetricValues evaluate(Trainer& trainer, BatchReader reader, HeadMetrics metrics,
                      const std::function<void(const Batch&)>& seen = nullptr);
MetricValues evaluate(Trainer& trainer, BatchReader reader);  // with the usual metrics

}  // namespace tessera
