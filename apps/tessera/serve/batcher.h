// Dynamic batching: requests wait in one bounded queue, and workers predict as many at once as there are.
//
// A worker takes a batch when `max_batch` samples wait or when the oldest request has waited `max_wait`. While all
// workers predict, requests accumulate by themselves. The queue is first come, first served. A connection submits its
// next request only after the answer to the previous one, so it never has two in the queue. This makes the queue fair:
// a request waits for at most one request of each other connection.
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
  int64_t max_batch = 256;                // samples; a larger request is a batch of its own
  std::chrono::microseconds max_wait{0};  // 0: a free worker takes whatever waits
  size_t max_queue = 1024;                // requests
  int workers = 1;                        // threads that predict
};

struct Answer {
  Code code = Code::kOk;
  std::string error;  // unless kOk: a sentence; kResourceExhausted, there is no memory, may have none
  // Set for kOk: per output of the model, [request.batch, its width]. Valid during the call.
  std::span<const std::span<const float>> outputs;
};

// A request that the model's why_not() has accepted.
struct Job {
  InferRequest request;
  std::shared_ptr<Predictor> model;
  Clock::time_point deadline;  // end of the wait in the queue; afterwards kDeadlineExceeded
  // Called once by a worker. If it throws bad_alloc, the client gets no answer and runs into its deadline.
  std::function<void(const InferRequest& request, const Answer& answer)> done;
};

class Batcher {
 public:
  Batcher(const BatcherOptions& options, Metrics& metrics);
  ~Batcher() { stop(); }
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // [any-thread] Returns false and leaves `job` unchanged if the queue is full. After bad_alloc, the job is not in the
  // queue.
  bool submit(Job&& job);
  // Answers the requests in the queue and accepts no more.
  void stop();
  size_t waiting() const;  // requests in the queue
  const BatcherOptions& options() const { return options_; }

 private:
  struct Waiting {
    Job job;
    Clock::time_point due;  // latest start of its batch
  };
  void work();
  bool ready() const;
  void take(std::vector<Job>& jobs);  // takes at least one job, if any waits and `jobs` has space for it

  const BatcherOptions options_;
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Waiting> queue_;
  int64_t samples_ = 0;  // samples in the queue
  bool stopping_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace tessera::serve
