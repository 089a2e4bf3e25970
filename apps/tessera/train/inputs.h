// The batches of a training run, one for each step; on demand read ahead, while the step before is under way.
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

namespace tessera::cli {

struct TrainInputsOptions {
  int64_t first_step = 0, steps = 0;  // batches of steps [first_step, steps)
  // Another thread reads the next batch, routes it and exchanges its ids meanwhile. The same batches in the same order.
  bool ahead = false;
  // Asked before each batch is taken ahead: whether this rank wants to end, which it then says to all.
  std::function<bool()> finished;
};

class TrainInputs {
 public:
  struct Input {
    Batch batch;
    StepHandle taken;  // empty unless ahead: by ShardedInputs, for the forward of this batch
  };

  // Collective when ahead.
  TrainInputs(BatchReader reader, ShardedEmbeddingBagCollection& collection, const TrainInputsOptions& options);
  // Ends the thread, wherever it is.
  ~TrainInputs();
  TrainInputs(const TrainInputs&) = delete;
  TrainInputs& operator=(const TrainInputs&) = delete;

  // The input of the next step: that of the call before is no longer valid. Throws what went wrong with it, on the rank
  // where it did and, for what concerns all ranks, on all.
  Input& next();
  // Tells the other ranks why this one will take no further batches.
  void abort(const std::string& reason) const;
  // Spans of the reading and, when ahead, of all that the thread does; before the first next().
  void set_trace(Trace* trace);

  double read_s() const { return read_s_; }      // in all
  double waited_s() const { return waited_s_; }  // by next(), in all

 private:
  template <class Ready>
  void wait_until(const Ready& ready);
  void read(int64_t step, Batch& batch);
  void run();
  void fill(int64_t step, Input& input);

  BatchReader reader_;
  TrainInputsOptions options_;
  std::array<Input, 2> slots_;  // in turns
  int64_t next_step_;
  Trace* trace_ = nullptr;
  double read_s_ = 0, waited_s_ = 0;

  std::unique_ptr<ShardedInputs> inputs_;  // null unless ahead, as is the thread
  std::mutex mutex_;                       // held to change what follows
  std::condition_variable changed_;
  std::atomic<int64_t> asked_ = 0, filled_ = 0;  // steps below these
  std::atomic<bool> stop_ = false, failed_ = false;
  std::exception_ptr error_;  // read where failed_ is
  std::thread thread_;
};

}  // namespace tessera::cli
