// tessera/train_loop.h - a job is a loop over batches: steps of a Trainer, fed by a pipeline, until they are done or
// some rank wants to end; and what people do between steps.
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

#include "tessera/head_metrics.h"
#include "tessera/train_pipeline.h"
#include "tessera/trainer.h"

namespace tessera {

class TrainLoop;

// A step of a loop that is over.
struct StepEnd {
  int64_t step = 0;    // steps done, those before this run included
  const Batch& batch;  // its batch on this rank
  bool last = false;   // no step follows in this run
};

struct TrainLoopOptions {
  int64_t first_step = 0, steps = 0;  // trains steps [first_step, steps); first_step are done already
  bool ahead = false;                 // TrainPipelineOptions::ahead
  // [any-thread] Asked before each step: whether this rank wants to end. All end behind the same step.
  std::function<bool()> stop = nullptr;
  // Called by all ranks in the same order, so it may be collective: reports, checkpoints, evaluation. What it throws
  // ends the run.
  std::function<void(TrainLoop&, const StepEnd&)> after_step = nullptr;
  // losses() has as many of the newest at least, and mean_loss() drops older ones: for runs without end.
  size_t keep_losses = std::numeric_limits<size_t>::max() / 2;
  Trace* step_trace = nullptr;   // spans of the steps
  Trace* input_trace = nullptr;  // and of the pipeline; another one, as it may have a thread of its own
};

// Used by one thread. All calls but those that only tell are collective.
class TrainLoop {
 public:
  TrainLoop(Trainer& trainer, ReadBatch read, TrainLoopOptions options);

  // Once: up to the last step, a stop, or a batch without samples. What goes wrong in reading on one rank ends the run
  // on all. kFailedPrecondition: see check_losses().
  void run();
  // The mean over ranks and samples of the losses since the last call, 0 where there was none since; looks at losses.
  double mean_loss();
  // Looks at the losses of new steps, all ranks' together. kFailedPrecondition, on all ranks alike, where one is
  // infinite or no number. run() does not do it by itself, for on a device it waits: what reports or saves does.
  void check_losses();

  bool stopped() const { return stopped_; }                      // by `stop` of some rank
  int64_t steps_done() const { return steps_done_; }             // in this run
  int64_t samples() const { return samples_; }                   // of all ranks, in this run
  const std::vector<double>& losses() const { return losses_; }  // of the steps looked at
  // Seconds of run() on this rank: in all; in the pipeline's reading; and waiting for the pipeline.
  double seconds() const { return seconds_; }
  double read_s() const { return read_s_; }
  double waited_s() const { return waited_s_; }

 private:
  void train(TrainPipeline& inputs);

  Trainer& trainer_;
  ReadBatch read_;
  TrainLoopOptions options_;
  std::deque<int64_t> batch_sizes_;  // of all ranks together, by step that check_losses() has not looked at
  int64_t steps_done_ = 0, looked_at_ = 0;
  std::vector<double> losses_;
  size_t told_ = 0;  // how many of them mean_loss() has told
  bool stopped_ = false;
  int64_t samples_ = 0;
  double seconds_ = 0, read_s_ = 0, waited_s_ = 0;
};

// How good the model is on the samples that `reader` still has. All ranks have readers of one shape; the result is the
// same on all. `metrics`: of trainer.predictions(), without samples yet. `seen`: told of each batch. Collective.
MetricValues evaluate(Trainer& trainer, BatchReader reader, HeadMetrics metrics,
                      const std::function<void(const Batch&)>& seen = nullptr);
MetricValues evaluate(Trainer& trainer, BatchReader reader);  // the usual ones

}  // namespace tessera
