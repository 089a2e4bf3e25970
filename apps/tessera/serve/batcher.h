// Dynamic batching: requests wait in one bounded queue, and workers predict as many at once as there are.
//
// A worker takes a batch when `max_batch` samples wait or the oldest request has waited `max_wait`; while all workers
// predict, requests gather by themselves. The queue is first come, first served. A connection hands its next request
// over when it has the answer to the one before, so that nobody has two in the queue: that makes it fair, every
// connection gets its turn after at most one request of each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "serve/metrics.h"
#include "serve/protocol.h"
#include "tessera/error.h"
#include "tessera/predictor.h"

namespace tessera::serve {

using Clock = std::chrono::steady_clock;

struct BatcherOptions {
  int64_t max_batch = 256;                // samples; a request that has more is a batch of its own
  std::chrono::microseconds max_wait{0};  // 0: what is there when a worker is free
  size_t max_queue = 1024;                // requests
  int workers = 1;                        // threads that predict
};

struct Answer {
  Code code = Code::kOk;
  std::string error;  // unless kOk: a sentence; kResourceExhausted, there is no memory, may have none
  // For kOk, of each output of the model: [request.batch, its width]. Valid during the call.
  std::span<const std::span<const float>> outputs;
};

// A request that the model's why_not() has nothing against.
struct Job {
  InferRequest request;
  std::shared_ptr<Predictor> model;
  Clock::time_point deadline;  // of the wait in the queue: kDeadlineExceeded
  // Called once by a worker. It may throw bad_alloc: nobody is told then, and the deadline has to do.
  std::function<void(const InferRequest& request, const Answer& answer)> done;
};

class Batcher {
 public:
  Batcher(const BatcherOptions& options, Metrics& metrics);
  ~Batcher() { stop(); }
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // [any-thread] False, and `job` unchanged: the queue is full. bad_alloc: it is not in the queue.
  bool submit(Job&& job);
  // Answers what is in the queue, and takes nothing more.
  void stop();
  size_t waiting() const;  // requests in the queue
  const BatcherOptions& options() const { return options_; }

 private:
  struct Waiting {
    Job job;
    Clock::time_point due;  // when its batch starts at the latest
  };
  void work();
  bool ready() const;
  void take(std::vector<Job>& jobs);  // at least one, if any waits and `jobs` has room for it

  const BatcherOptions options_;
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> queue_;
  int64_t samples_ = 0;  // in the queue
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace tessera::serve
