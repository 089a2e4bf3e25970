// tessera/train_pipeline.h - the batches of a training run, one per step, optionally prepared during the step before.
// It does what TorchRec's TrainPipelineSparseDist does.
//
//   TrainPipeline inputs(in_epochs(BatchReader(data.train, ...)), model.bags("sparse"), {.steps = 1000, .ahead =
//   true}); for (int64_t step = 0; step < 1000; ++step) {
//     TrainInput& input = inputs.next();
//     auto pooled = (input.taken ? bags.forward(input.taken) : bags.forward(input.batch.sparse)).wait();
//     ...
//   }
//
// TrainLoop (tessera/train_loop.h) uses it, so most programs only supply the batches.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tessera/data.h"
#include "tessera/sharded_modules.h"

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
};

struct TrainInput {
  Batch batch;
  StepHandle taken;  // empty unless ahead: from ShardedInputs, for the forward of this batch
};

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

}  // namespace tessera
