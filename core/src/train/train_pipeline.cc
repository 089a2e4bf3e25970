#include "tessera/train_loop.h"

#include <chrono>
#include <utility>

#include "distributed/stopwatch.h"

namespace tessera {

ReadBatch in_epochs(BatchReader reader) {
  struct Epochs {
    BatchReader reader;
    int64_t next = -1;  // the step whose batch is being read
  };
  return [e = std::make_shared<Epochs>(Epochs{std::move(reader)})](int64_t step, Batch& batch) {
    const int64_t per_epoch = e->reader.batches();
    if (step != e->next || step % per_epoch == 0) {
      e->reader.start_epoch(step / per_epoch);
      e->reader.seek(step % per_epoch);
    }
    TESSERA_CHECK(e->reader.next(batch), "the epoch has as many batches as it says");
    e->next = step + 1;
  };
}

bool can_work_ahead(const ProcessGroup& group) {
  const bool here = static_cast<int>(std::thread::hardware_concurrency()) > group.local_world_size();
  const Tensor able = Tensor::scalar<double>(here ? 1 : 0);
  if (group.world_size() > 1) group.all_reduce(able, ReduceOp::kSum, "work ahead").wait();
  return able.item() == group.world_size();
}

TrainPipeline::TrainPipeline(ReadBatch read, ShardedEmbeddingBagCollection& collection,
                             const TrainPipelineOptions& options)
    : read_(std::move(read)),
      options_(options),
      next_step_(options.first_step),
      asked_(options.first_step),
      filled_(options.first_step) {
  if (!options_.ahead) return;
  inputs_ = options_.sequences ? std::make_unique<ShardedInputs>(collection, *options_.sequences)
                               : std::make_unique<ShardedInputs>(collection);
}

TrainPipeline::~TrainPipeline() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (filled_ < asked_ && !failed_) abort("training has ended");
  }
  changed_.notify_all();
  thread_.join();
}

void TrainPipeline::abort(const std::string& reason) const {
  if (inputs_) inputs_->abort(reason);
}

void TrainPipeline::set_trace(Trace* trace) {
  trace_ = trace;
  if (inputs_) inputs_->set_trace(trace);
}

TrainInput& TrainPipeline::next() {
  const int64_t step = next_step_++;
  TESSERA_CHECK(step < options_.steps, "a pipeline has as many inputs as it has steps");
  TrainInput& input = slots_[static_cast<size_t>(step % 2)];
  Stopwatch watch;
  if (!inputs_) {
    read(step, input.batch);
    watch.lap(waited_s_, "wait");
    return input;
  }
  if (!thread_.joinable()) {
    input.taken = inputs_->reserve_all();
    asked_ = step + 1;
    thread_ = std::thread([this] { run(); });
  }
  TakenBatch place = inputs_->reserve_all();
  {
    wait_until([&] { return filled_ > step || failed_; });
    const std::lock_guard lock(mutex_);
    if (filled_ <= step) std::rethrow_exception(error_);
    if (step + 1 < options_.steps) {  // reuse the slot of the previous step, which is over
      slots_[static_cast<size_t>((step + 1) % 2)].taken = std::move(place);
      asked_ = step + 2;
    }
  }
  changed_.notify_all();
  watch.lap(waited_s_, "wait");
  return input;
}

// Spins for a few microseconds, because the other thread is often ready by then, and then sleeps. It does not yield: on
// a busy machine a yielding thread gets its core back only after milliseconds, a sleeping one at once.
template <class Ready>
void TrainPipeline::wait_until(const Ready& ready) {
  constexpr auto kAwake = std::chrono::microseconds(5);
  const auto end = std::chrono::steady_clock::now() + kAwake;
  while (!ready()) {
    if (std::chrono::steady_clock::now() < end) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ready);
  }
}

void TrainPipeline::read(int64_t step, Batch& batch) {
  if (trace_) trace_->set_step(step);
  Stopwatch watch(trace_);
  read_(step, batch);
  double seconds = 0;
  watch.lap(seconds, "read");
  read_s_ = read_s_ + seconds;
}

void TrainPipeline::fill(int64_t step, TrainInput& input) {
  try {
    read(step, input.batch);
  } catch (const std::exception& e) {  // the other ranks wait for this rank's batch
    abort(e.what());
    throw;
  }
  const bool finished = options_.finished && options_.finished();
  inputs_->take(input.taken, input.batch.sparse, finished);
}

void TrainPipeline::run() {
  for (int64_t step = options_.first_step; step < options_.steps; ++step) {
    wait_until([&] { return asked_ > step || stop_; });
    if (stop_) return;
    std::exception_ptr error;
    try {
      fill(step, slots_[static_cast<size_t>(step % 2)]);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      if (error)
        failed_ = true;
      else
        filled_ = step + 1;
    }
    changed_.notify_all();
    if (error) return;
  }
}

}  // namespace tessera
