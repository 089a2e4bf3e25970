// A non-blocking NCCL communicator: every call returns at once, and what is under way is asked for until a deadline.
// ncclCommAbort alone may take its time, and on a sick device for ever: it runs in a thread of its own, and after
// `patience_s` the communicator is left to it.
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

  // Null for color -1. Where it fails this communicator is stopped, too: NCCL is still at work in it.
  std::unique_ptr<Communicator> split(int32_t color, int32_t rank, double timeout_s);

  // Runs `body`, NCCL calls between group start and end, and waits until NCCL has taken them. Throws what stop() was
  // told, kDeadlineExceeded, or NCCL's error.
  void enqueue(const std::function<void(ncclComm_t)>& body, Clock::time_point deadline);
  // Why the communicator broke by itself; empty: it did not.
  std::string broken();
  // Makes what is under way end, on the device too; from any thread. Later calls throw `why`. Kernels look at NCCL's
  // flag now and then only, and may touch their buffers until then: their stream says when they have ended. False:
  // NCCL did not come back in time, so nobody knows what it still does.
  bool stop(const sdk::Failure& why);
  double patience_s() const { return patience_s_; }

 private:
  Communicator(ncclComm_t comm, double patience_s) : patience_s_(patience_s), comm_(comm) {}
  void settle(ncclResult_t result, Clock::time_point deadline, const char* what);

  const double patience_s_;
  std::mutex mutex_;  // of every NCCL call but ncclCommAbort
  ncclComm_t comm_;   // null once stopped
  std::unique_ptr<sdk::Failure> stopped_;
  std::shared_future<void> aborted_;  // once stopped
};

// Throws with NCCL's sentence unless `result` is success or under way.
void check(ncclResult_t result, ncclComm_t comm, const char* what);

}  // namespace tessera::nccl
