// Adds what NCCL lacks: a thread that checks that all ranks start the same operation, keeps the deadlines, and knows
// which rank to blame. Ranks exchange descriptions over the side channel while the operation runs, not before it.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "communicator.h"
#include "gpu/gpu.h"

namespace tessera::nccl {

// The description of an operation that ranks compare.
struct Description {
  std::string op;     // such as "all_reduce"
  std::string label;  // the caller's label; may be empty
  int64_t reduce = -1;
  int64_t dtype = 0;  // code, bits and lanes
  int64_t bytes = 0;  // bytes that must be the same on all ranks; -1 if they may differ
  // For all_to_all_v: elements to and from each rank; otherwise empty.
  std::vector<int64_t> to, from;
};

class Watch {
 public:
  // `name` is the transport's, the prefix of every message. `device` is the current device of the operations.
  Watch(std::unique_ptr<Side> side, Communicator& communicator, std::string name, int device);
  ~Watch();
  Watch(const Watch&) = delete;

  // Called before an operation is enqueued. The other ranks are then asked about it, and its timeout begins. Returns
  // its number.
  uint64_t started(Description what, double timeout_s);
  // Called when the operation is enqueued; it is done when the event is reached. After started(), either this or fail()
  // is called.
  void enqueued(uint64_t number, gpu::Event event);
  // Blocks until the operation is done on the device; throws the reason if it will not be.
  void wait(uint64_t number);
  // Called after another rank's failure. Throws the error of this rank that caused it, if there is one.
  void ask_why();
  // Throws the first failure, if there is one. Waits for a failure that is being reported.
  void check();
  // Does the same without waiting.
  void status();
  // Sets the failure, unless there was an earlier one. If `tell` is not null, the other ranks are told first, because
  // ending operations here may take time. When this returns, wait() and check() throw the failure, and the communicator
  // is stopped; if NCCL did not return in time, the text says so.
  void fail(tsr_code code, const std::string& text, const char* tell, int32_t rank = -1);
  void fail(const sdk::Failure& failure) { fail(failure.code(), failure.what(), failure.what(), failure.rank()); }
  void abort(const char* reason);
  // An event that no operation uses.
  gpu::Event take_event();

 private:
  struct Operation {
    Description what;
    double timeout_s;
    Clock::time_point deadline;
    uint64_t number;
  };
  void run();
  gpu::Event follow(const Operation& operation);
  void agree(const Operation& operation) const;
  [[noreturn]] void blame(tsr_code code, const std::string& otherwise) const;
  std::string retold(std::string text) const;

  std::unique_ptr<Side> side_;
  Communicator& communicator_;
  const std::string name_;
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> operations_;
  std::deque<gpu::Event> events_;  // of the enqueued operations, from number done_ + 1 on
  std::deque<gpu::Event> free_events_;
  uint64_t started_ = 0, enqueued_ = 0, done_ = 0;
  bool closing_ = false;
  // While it is set, operations do not count as done, because the abort may have ended them.
  bool failing_ = false;
  std::unique_ptr<sdk::Failure> failure_;  // set once the communicator was stopped
  std::thread thread_;
};

}  // namespace tessera::nccl
