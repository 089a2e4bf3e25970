#include "serve/batcher.h"

#include <algorithm>
#include <new>

#include "serve/merged_batch.h"

namespace tessera::serve {
namespace {

// Bound on the ids predicted at once, and so on what merging copies. One request may have more.
constexpr size_t kMaxIds = 1 << 20;

// A worker's buffers. Answers a batch.
class BatchRunner {
 public:
  explicit BatchRunner(Metrics& metrics) : metrics_(metrics) {}

  void answer(std::vector<Job>& jobs) {
    drop_late(jobs);
    if (jobs.empty()) return;
    const Answer answer = predict_together(jobs);
    const bool input_is_why = answer.code == Code::kInvalidArgument || answer.code == Code::kOutOfRange;
    const bool too_much = answer.code == Code::kResourceExhausted;
    if ((input_is_why || too_much) && jobs.size() > 1) return answer_each(jobs);
    int64_t first = 0;
    for (Job& job : jobs) {
      tell(job, answer.code == Code::kOk ? part(job.model->model(), first, job.request.batch) : answer);
      first += job.request.batch;
    }
  }

 private:
  // The answer for samples [first, first + samples) of the last prediction.
  Answer part(const ModelDescription& model, int64_t first, int64_t samples) {
    for (size_t o = 0; o < model.outputs.size(); ++o) {
      const int64_t width = model.outputs[o].width;
      parts_[o] = std::span<const float>(values_[o])
                      .subspan(static_cast<size_t>(first * width), static_cast<size_t>(samples * width));
    }
    return {Code::kOk, "", std::span(parts_).first(model.outputs.size())};
  }
  // If there is no memory even for the answer, the waiting client gives up at its deadline.
  static void tell(Job& job, const Answer& answer) {
    try {
      job.done(job.request, answer);
    } catch (const std::bad_alloc&) {
    }
  }
  void drop_late(std::vector<Job>& jobs) const {
    const auto now = Clock::now();
    std::erase_if(jobs, [&](Job& job) {
      if (now < job.deadline) return false;
      tell(job, late_);
      return true;
    });
  }
  Answer predict_together(const std::vector<Job>& jobs) {
    const auto start = Clock::now();
    int64_t samples = 0;
    for (const Job& job : jobs) samples += job.request.batch;
    Answer answer = predict(*jobs[0].model, samples, [&] {
      if (jobs.size() == 1) return jobs[0].request.input();
      requests_.clear();
      for (const Job& job : jobs) requests_.push_back(&job.request);
      return merged_.merge(requests_);
    });
    metrics_.batch(jobs.size(), samples, std::chrono::duration<double>(Clock::now() - start).count());
    return answer;
  }
  // Used if the model rejects a merged batch: a faulty request must not fail the others. A batch too large for memory
  // may fit one request at a time.
  void answer_each(std::vector<Job>& jobs) {
    for (Job& job : jobs) {
      const Answer answer = predict(*job.model, job.request.batch, [&] { return job.request.input(); });
      tell(job, answer);
    }
  }
  template <class Input>
  Answer predict(Predictor& model, int64_t samples, const Input& input) {
    try {
      const std::vector<ModelOutput>& outputs = model.model().outputs;
      parts_.resize(std::max(parts_.size(), outputs.size()));
      values_.resize(parts_.size());
      wanted_.clear();
      for (size_t o = 0; o < outputs.size(); ++o) {
        values_[o].resize(static_cast<size_t>(samples * outputs[o].width));
        wanted_.emplace_back(values_[o]);
      }
      model.predict_outputs(input(), wanted_);
      return part(model.model(), 0, samples);
    } catch (const std::bad_alloc&) {
      return {Code::kResourceExhausted, "", {}};
    } catch (const Error& e) {
      return failed(e.code() == Code::kOk ? Code::kInternal : e.code(), e);
    } catch (const std::exception& e) {
      return failed(Code::kInternal, e);
    }
  }
  static Answer failed(Code code, const std::exception& why) {
    try {
      return {code, why.what(), {}};
    } catch (const std::bad_alloc&) {
      return {code, "", {}};
    }
  }

  const Answer late_{Code::kDeadlineExceeded, "the deadline passed while the request waited for its turn", {}};
  Metrics& metrics_;
  MergedBatch merged_;
  std::vector<const InferRequest*> requests_;
  std::vector<std::vector<float>> values_;     // per output, of all samples
  std::vector<std::span<float>> wanted_;       // views of these
  std::vector<std::span<const float>> parts_;  // views of one request's share
};

// Returns false if there is no memory for more.
bool grow(std::vector<Job>& jobs) {
  try {
    jobs.reserve(2 * jobs.capacity());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

Batcher::Batcher(const BatcherOptions& options, Metrics& metrics) : options_(options), metrics_(metrics) {
  TESSERA_CHECK(options.max_batch > 0 && options.max_queue > 0 && options.workers > 0);
  for (int i = 0; i < options.workers; ++i) workers_.emplace_back([this] { work(); });
}

void Batcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

bool Batcher::submit(Job&& job) {
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= options_.max_queue || stopping_) return false;
    const bool was_full = samples_ >= options_.max_batch;
    const int64_t samples = job.request.batch;
    queue_.push_back({std::move(job), Clock::now() + options_.max_wait});
    samples_ += samples;
    // Requests in between wait for the batch that the first one has opened.
    wake = queue_.size() == 1 || (!was_full && samples_ >= options_.max_batch);
  }
  if (wake) wake_.notify_one();
  return true;
}

size_t Batcher::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

bool Batcher::ready() const {
  return stopping_ || samples_ >= options_.max_batch || Clock::now() >= queue_.front().due;
}

void Batcher::take(std::vector<Job>& jobs) {
  int64_t samples = 0;
  size_t ids = 0;
  while (!queue_.empty()) {
    const Job& next = queue_.front().job;
    const bool fits = samples + next.request.batch <= options_.max_batch && ids + next.request.values.size() <= kMaxIds;
    if (!jobs.empty() && (!fits || next.model != jobs[0].model)) break;
    if (jobs.size() == jobs.capacity() && !grow(jobs)) break;
    samples += next.request.batch;
    ids += next.request.values.size();
    jobs.push_back(std::move(queue_.front().job));
    queue_.pop_front();
  }
  samples_ -= samples;
}

void Batcher::work() {
  BatchRunner runner(metrics_);
  std::vector<Job> jobs;
  jobs.reserve(1);  // so that one more always fits
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return;
    if (!ready()) {
      const auto due = queue_.front().due;  // a copy, because another worker may take the request meanwhile
      wake_.wait_until(lock, due);
      continue;
    }
    take(jobs);
    const bool more = !queue_.empty();
    lock.unlock();
    if (more) wake_.notify_one();
    runner.answer(jobs);
    jobs.clear();  // requests and models are destroyed without the lock
    lock.lock();
  }
}

}  // namespace tessera::serve
