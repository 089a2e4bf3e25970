#include "train/inputs.h"

#include <chrono>

namespace tessera::cli {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

TrainInputs::TrainInputs(BatchReader reader, ShardedEmbeddingBagCollection& collection,
                         const TrainInputsOptions& options)
    : reader_(std::move(reader)),
      options_(options),
      next_step_(options.first_step),
      asked_(options.first_step),
      filled_(options.first_step) {
  if (options_.ahead) inputs_ = std::make_unique<ShardedInputs>(collection);
}

TrainInputs::~TrainInputs() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (filled_ < asked_ && !failed_) inputs_->abort("training has ended");
  }
  changed_.notify_all();
  thread_.join();
}

void TrainInputs::abort(const std::string& reason) const {
  if (inputs_) inputs_->abort(reason);
}

void TrainInputs::set_trace(Trace* trace) {
  trace_ = trace;
  if (inputs_) inputs_->set_trace(trace);
}

TrainInputs::Input& TrainInputs::next() {
  const int64_t step = next_step_++;
  Input& input = slots_[static_cast<size_t>(step % 2)];
  const double start = seconds_now();
  if (!inputs_) {
    read(step, input.batch);
    waited_s_ += seconds_now() - start;
    return input;
  }
  if (!thread_.joinable()) {
    input.taken = inputs_->reserve();
    asked_ = step + 1;
    thread_ = std::thread([this] { run(); });
  }
  StepHandle place = inputs_->reserve();
  {
    wait_until([&] { return filled_ > step || failed_; });
    const std::lock_guard lock(mutex_);
    if (filled_ <= step) std::rethrow_exception(error_);
    if (step + 1 < options_.steps) {  // into the slot of the step before, which is over
      slots_[static_cast<size_t>((step + 1) % 2)].taken = std::move(place);
      asked_ = step + 2;
    }
  }
  changed_.notify_all();
  waited_s_ += seconds_now() - start;
  return input;
}

// Awake for a few microseconds, as the other one is often ready by then; not longer, and without giving its turn away:
// beside a busy program a thread that yields gets its core back after milliseconds, one that slept gets it at once.
template <class Ready>
void TrainInputs::wait_until(const Ready& ready) {
  constexpr auto kAwake = std::chrono::microseconds(5);
  const auto end = std::chrono::steady_clock::now() + kAwake;
  while (!ready()) {
    if (std::chrono::steady_clock::now() < end) continue;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ready);
  }
}

void TrainInputs::read(int64_t step, Batch& batch) {
  const auto start = Trace::Clock::now();
  const int64_t per_epoch = reader_.batches();
  if (step == options_.first_step || step % per_epoch == 0) {
    reader_.start_epoch(step / per_epoch);
    reader_.seek(step % per_epoch);
  }
  TESSERA_CHECK(reader_.next(batch), "the epoch has as many batches as it says");
  const auto end = Trace::Clock::now();
  read_s_ += std::chrono::duration<double>(end - start).count();
  if (!trace_) return;
  trace_->set_step(step);
  trace_->add("read", start, end);
}

void TrainInputs::fill(int64_t step, Input& input) {
  try {
    read(step, input.batch);
  } catch (const std::exception& e) {  // the others wait for this rank's batch
    inputs_->abort(e.what());
    throw;
  }
  inputs_->take(input.taken, input.batch.sparse, options_.finished && options_.finished());
}

void TrainInputs::run() {
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

}  // namespace tessera::cli
