// tessera/train_pipeline.h - the batches of a training run, one for each step, on demand made ready while the step
// before is under way: what TorchRec's TrainPipelineSparseDist does.
//
//   TrainPipeline inputs(in_epochs(BatchReader(data.train, ...)), model.bags("sparse"), {.steps = 1000, .ahead =
//   true}); for (int64_t step = 0; step < 1000; ++step) {
//     TrainInput& input = inputs.next();
//     auto pooled = (input.taken ? bags.forward(input.taken) : bags.forward(input.batch.sparse)).wait();
//     ...
//   }
//
// TrainLoop (tessera/train_loop.h) goes through it, so most programs only say where batches come from.
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

// Fills `batch` with this rank's share of a step's global batch; steps come in order, each once. What was in `batch` is
// of an earlier step and its memory may be used again, so nothing of it is kept. Ahead of the steps it is called by the
// pipeline's thread. A global_size of 0, on all ranks alike, says that there are no more batches: only where the
// pipeline does not work ahead.
using ReadBatch = std::function<void(int64_t step, Batch& batch)>;

// The batches of a reader, epoch after epoch: batch s % batches() of epoch s / batches() for step s.
ReadBatch in_epochs(BatchReader reader);

// True if every rank of the group has a processor to spare for a thread that works ahead; without one it only takes
// turns with the step. The same on all ranks. Collective.
bool can_work_ahead(const ProcessGroup& group);

struct TrainPipelineOptions {
  int64_t first_step = 0, steps = 0;  // batches of steps [first_step, steps)
  // Another thread reads the next batch, routes it and exchanges its ids meanwhile. The same batches in the same order.
  bool ahead = false;
  // Asked before each batch is taken ahead: whether this rank wants to end, which it then says to all.
  std::function<bool()> finished = nullptr;
};

struct TrainInput {
  Batch batch;
  StepHandle taken;  // empty unless ahead: by ShardedInputs, for the forward of this batch
};

// Used by one thread, that of the collection.
class TrainPipeline {
 public:
  // `collection` lives longer. Ahead, it is collective.
  TrainPipeline(ReadBatch read, ShardedEmbeddingBagCollection& collection, const TrainPipelineOptions& options);
  // Ends the thread, wherever it is.
  ~TrainPipeline();
  TrainPipeline(const TrainPipeline&) = delete;
  TrainPipeline& operator=(const TrainPipeline&) = delete;

  // The input of the next step, of which there is one: that of the call before is no longer valid. Throws what went
  // wrong with it, on the rank where it did and, for what concerns all ranks, on all.
  TrainInput& next();
  // Tells the other ranks why this one will take no further batches.
  void abort(const std::string& reason) const;
  // Spans of the reading and, when ahead, of all that the thread does; before the first next().
  void set_trace(Trace* trace);

  double read_s() const { return read_s_; }      // in all; of a job that ends early, up to now
  double waited_s() const { return waited_s_; }  // by next(), in all

 private:
  template <class Ready>
  void wait_until(const Ready& ready);
  void read(int64_t step, Batch& batch);
  void run();
  void fill(int64_t step, TrainInput& input);

  ReadBatch read_;
  TrainPipelineOptions options_;
  std::array<TrainInput, 2> slots_;  // in turns
  int64_t next_step_;
  Trace* trace_ = nullptr;
  std::atomic<double> read_s_ = 0;  // the thread adds to it
  double waited_s_ = 0;

  std::unique_ptr<ShardedInputs> inputs_;  // null unless ahead, as is the thread
  std::mutex mutex_;                       // held to change what follows
  std::condition_variable changed_;
  std::atomic<int64_t> asked_ = 0, filled_ = 0;  // steps below these
  std::atomic<bool> stop_ = false, failed_ = false;
  std::exception_ptr error_;  // read where failed_ is
  std::thread thread_;
};

}  // namespace tessera
