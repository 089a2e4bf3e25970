// tessera/train_loop.h - the loop of a job: steps of a Trainer, fed by a pipeline, until they are done or some rank
// wants to end, with callbacks between steps; its batches, and the signals that end it.
//
//   TrainLoop loop(trainer, in_epochs(BatchReader(data.train, {...})), {
//       .steps = 1000, .stop = StopSignals::requested,
//       .after_step = [&](TrainLoop& loop, const StepEnd& end) {
//         if (end.step % 100 == 0) std::cout << end.step << ": " << loop.mean_loss() << '\n';
//         if (end.step % 500 == 0) save_checkpoint(...);
//       }});
//   loop.run();
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tessera/data.h"
#include "tessera/metrics.h"
#include "tessera/sharded_modules.h"
#include "tessera/trainer.h"

namespace tessera {

// Fills `batch` with this rank's share of a step's global batch. Steps come in order, each once. `batch` may hold data
// of an earlier step; its memory can be reused. If the pipeline works ahead, its thread makes the call. Otherwise a
// global_size of 0, on all ranks, says that there are no more batches.
using ReadBatch = std::function<void(int64_t step, Batch& batch)>;

// The batches of a reader, epoch after epoch: step s gets batch s % batches() of epoch s / batches().
ReadBatch in_epochs(BatchReader reader);

// True if every rank of the group has a processor for a thread that works ahead; otherwise that thread would only take
// turns with the step. The same on all ranks. Collective.
bool can_work_ahead(const ProcessGroup& group);

struct TrainPipelineOptions {
  int64_t first_step = 0, steps = 0;  // batches of steps [first_step, steps)
  // Another thread reads the next batch, routes it and exchanges its ids meanwhile. Batches and their order stay the
  // same.
  bool ahead = false;
  // Called before each batch is taken ahead; true: this rank wants to end, and all ranks are told.
  std::function<bool()> finished = nullptr;
  // Further tables for the ids of the same batches (Trainer::sequences_ahead()); null: none. It must outlive the
  // pipeline.
  ShardedEmbeddingCollection* sequences = nullptr;
};

struct TrainInput {
  Batch batch;
  TakenBatch taken;  // empty unless ahead
};

// The batches of a training run, one per step, optionally prepared during the step before, as TorchRec's
// TrainPipelineSparseDist does. TrainLoop has one. A loop of your own may also have one:
//
//   TrainPipeline inputs(in_epochs(BatchReader(data.train, ...)), bags, {.steps = 1000, .ahead = true});
//   for (int64_t step = 0; step < 1000; ++step) {
//     TrainInput& input = inputs.next();
//     auto pooled = (input.taken ? bags.forward(input.taken.pooled) : bags.forward(input.batch.sparse)).wait();
//     ...
//   }
//
// Used by one thread, the collection's.
class TrainPipeline {
 public:
  // `collection` must outlive it. With `ahead` it is collective.
  TrainPipeline(ReadBatch read, ShardedEmbeddingBagCollection& collection, const TrainPipelineOptions& options);
  // Ends the thread, whatever it is doing.
  ~TrainPipeline();
  TrainPipeline(const TrainPipeline&) = delete;
  TrainPipeline& operator=(const TrainPipeline&) = delete;

  // Returns the next step's input; the previous one becomes invalid. Throws its error on the rank where it occurred, or
  // on all ranks if it concerns all.
  TrainInput& next();
  // Tells the other ranks why this one will take no more batches.
  void abort(const std::string& reason) const;
  // Records spans of the reading and, with `ahead`, of the thread's work. Call it before the first next().
  void set_trace(Trace* trace);

  double read_s() const { return read_s_; }      // in all
  double waited_s() const { return waited_s_; }  // by next(), in all

 private:
  template <class Ready>
  void wait_until(const Ready& ready);
  void read(int64_t step, Batch& batch);
  void run();
  void fill(int64_t step, TrainInput& input);

  ReadBatch read_;
  TrainPipelineOptions options_;
  std::array<TrainInput, 2> slots_;  // used in turn
  int64_t next_step_;
  Trace* trace_ = nullptr;
  std::atomic<double> read_s_ = 0;  // the thread adds to it
  double waited_s_ = 0;

  std::unique_ptr<ShardedInputs> inputs_;  // null unless ahead
  std::mutex mutex_;                       // held while the members below change
  std::condition_variable changed_;
  std::atomic<int64_t> asked_ = 0, filled_ = 0;  // steps below these
  std::atomic<bool> stop_ = false, failed_ = false;
  std::exception_ptr error_;  // valid if failed_
  std::thread thread_;
};

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

// The exit status of a job that a signal ended between two steps, after everything was saved: sysexits' EX_TEMPFAIL,
// "try again later".
inline constexpr int kStoppedBySignal = 75;

// SIGTERM, SIGINT and SIGHUP ask a job to end in good order. Slurm, Kubernetes, Ctrl-C and a closing terminal send
// them. While this object lives, the first of these signals is only remembered. The second one ends the process at
// once, with status 128 + N, unless it is the same signal within a second, which counts as the first received twice.
// Signals that were ignored stay ignored, because a shell's "job &" must not react to Ctrl-C. There may be one object
// at a time.
class StopSignals {
 public:
  StopSignals();
  // Restores the previous handlers, unless a signal was received: the process is then about to end, and its launcher
  // may forward the same signal a moment later.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  static bool requested();  // [any-thread] stays true after the object is gone
  // Restores the previous handlers and raises the remembered signal; does nothing without one.
  static void raise_again();
};

}  // namespace tessera
