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

// One operation, as all ranks compare it.
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

  // Called before an operation is enqueued: from now on the others are asked, and its time runs. Returns its number.
  uint64_t started(Description what, double timeout_s);
  // Called once the operation is enqueued; it is done when the event is reached. Always follows started(), unless
  // fail() does.
  void enqueued(uint64_t number, gpu::Event event);
  // Blocks until the operation is done on the device; throws the reason if it will not be.
  void wait(uint64_t number);
  // Call after a failure elsewhere: throws an error that happened here before it, if any.
  void ask_why();
  // Throws the first failure, if there was one; waits for one that is being reported.
  void check();
  // The same without waiting.
  void status();
  // The first failure counts. If `tell` is not null, the other ranks are told of it first, because ending operations
  // here may take time. Once this returns, wait() and check() throw the failure. By then the communicator was stopped,
  // or NCCL did not return, which the text then says.
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
  // operations that end from now on may have been ended by the abort, so they do not count as done
  bool failing_ = false;
  std::unique_ptr<sdk::Failure> failure_;  // set once the communicator was stopped
  std::thread thread_;
};

}  // namespace tessera::nccl
