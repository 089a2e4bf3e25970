// A non-blocking NCCL communicator: every call returns at once, and its completion is polled until a deadline. Only
// ncclCommAbort may take long, and on a faulty device it may never return. It therefore runs in its own thread, which
// keeps the communicator if it takes longer than `patience_s`.
#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "side.h"

namespace tessera::nccl {

using Clock = std::chrono::steady_clock;
inline Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Communicator {
 public:
  static constexpr double kPatience_s = 10;

  // All ranks of `side` meet on their current devices. Blocks until then, or throws.
  static std::unique_ptr<Communicator> connect(const Side& side, double timeout_s, double patience_s = kPatience_s);
  ~Communicator();
  Communicator(const Communicator&) = delete;

  // Null for color -1. If this fails, this communicator is stopped as well, because NCCL is still working in it.
  std::unique_ptr<Communicator> split(int32_t color, int32_t rank, double timeout_s);

  // Runs `body`, NCCL calls between group start and end, and waits until NCCL has accepted them. Throws the failure
  // given to stop(), kDeadlineExceeded, or NCCL's error.
  void enqueue(const std::function<void(ncclComm_t)>& body, Clock::time_point deadline);
  // The reason why the communicator broke by itself; empty if it did not.
  std::string broken();
  // Ends everything in flight, also on the device; may be called from any thread. Later calls throw `why`. Kernels
  // check NCCL's flag only now and then, and may touch their buffers until then; their stream tells when they have
  // ended. Returns false if NCCL did not return in time, so that its state is unknown.
  bool stop(const sdk::Failure& why);
  double patience_s() const { return patience_s_; }

 private:
  Communicator(ncclComm_t comm, double patience_s) : patience_s_(patience_s), comm_(comm) {}
  void settle(ncclResult_t result, Clock::time_point deadline, const char* what);

  const double patience_s_;
  std::mutex mutex_;  // guards every NCCL call except ncclCommAbort
  ncclComm_t comm_;   // null once stopped
  std::unique_ptr<sdk::Failure> stopped_;
  std::shared_future<void> aborted_;  // valid once stopped
};

// Throws with NCCL's text unless `result` is success or in progress.
void check(ncclResult_t result, ncclComm_t comm, const char* what);

}  // namespace tessera::nccl
