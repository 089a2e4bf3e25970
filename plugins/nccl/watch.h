// What NCCL does not: a thread that checks that all ranks start the same operation, keeps the deadlines, and knows whom
// to blame. Ranks tell each other over the side channel, beside the operation and not before it.
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

// One operation as all ranks compare it.
struct Description {
  std::string op;     // "all_reduce"
  std::string label;  // of the caller; may be empty
  int64_t reduce = -1;
  int64_t dtype = 0;  // code, bits and lanes
  int64_t bytes = 0;  // that must be the same everywhere; -1: need not
  // all_to_all_v: elements to and from each rank; otherwise empty.
  std::vector<int64_t> to, from;
};

class Watch {
 public:
  // `name`: of the transport, before every sentence. `device`: the current one of the operations.
  Watch(std::unique_ptr<Side> side, Communicator& communicator, std::string name, int device);
  ~Watch();
  Watch(const Watch&) = delete;

  // An operation is about to be enqueued: from now on the others are asked, and its time runs. Returns its number.
  uint64_t started(Description what, double timeout_s);
  // The same operation, enqueued: it is done when the event is reached. Always follows started(), or fail().
  void enqueued(uint64_t number, gpu::Event event);
  // Blocks until it is done on the device; throws why it will not be.
  void wait(uint64_t number);
  // After a failure elsewhere: throws what went wrong here before it, if anything did.
  void ask_why();
  // Throws the first failure, if there was one; one that is being made known is waited for.
  void check();
  // The same, without waiting for anything.
  void status();
  // The first one counts. The other ranks are told first, of `tell` where it is not null: to end what is under way here
  // may take its time. From the return on wait() and check() throw it: never before the communicator was stopped, or
  // NCCL did not come back, which the text then says.
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
  std::deque<gpu::Event> events_;  // of the operations that are enqueued, from number done_ + 1 on
  std::deque<gpu::Event> free_events_;
  uint64_t started_ = 0, enqueued_ = 0, done_ = 0;
  bool closing_ = false;
  bool failing_ = false;                   // what ends from now on may have been ended by the abort: it is not done
  std::unique_ptr<sdk::Failure> failure_;  // once the communicator was stopped
  std::thread thread_;
};

}  // namespace tessera::nccl
