#include "serve/batcher.h"

#include "serve/merged_batch.h"

namespace tessera::serve {
namespace {

// Ids that are predicted at once, unless one request has more: what merging may copy.
constexpr size_t kMaxIds = 1 << 20;

// A worker's buffers, and how it answers a batch.
class BatchRunner {
 public:
  explicit BatchRunner(Metrics& metrics) : metrics_(metrics) {}

  void answer(std::vector<Job>& jobs) {
    drop_late(jobs);
    if (jobs.empty()) return;
    requests_.clear();
    int64_t samples = 0;
    for (const Job& job : jobs) {
      requests_.push_back(&job.request);
      samples += job.request.batch;
    }
    const auto start = Clock::now();
    const PredictInput input = jobs.size() == 1 ? jobs[0].request.input() : merged_.merge(requests_);
    const Answer answer = predict(*jobs[0].model, input);
    metrics_.batch(jobs.size(), samples, std::chrono::duration<double>(Clock::now() - start).count());
    const bool input_is_why = answer.code == Code::kInvalidArgument || answer.code == Code::kOutOfRange;
    if (input_is_why && jobs.size() > 1) return answer_each(jobs);
    size_t first = 0;
    for (Job& job : jobs) {
      const auto n = static_cast<size_t>(job.request.batch);
      Answer own{answer.code, answer.error, {}};
      if (answer.code == Code::kOk) own.scores = answer.scores.subspan(first, n);
      first += n;
      job.done(job.request, own);
    }
  }

 private:
  static void drop_late(std::vector<Job>& jobs) {
    const auto now = Clock::now();
    std::erase_if(jobs, [&](Job& job) {
      if (now < job.deadline) return false;
      job.done(job.request, {Code::kDeadlineExceeded, "the deadline passed while the request waited for its turn", {}});
      return true;
    });
  }
  // A model that finds fault with a request that it had nothing against: the others shall not have the damage.
  void answer_each(std::vector<Job>& jobs) {
    for (Job& job : jobs) job.done(job.request, predict(*job.model, job.request.input()));
  }
  Answer predict(Predictor& model, const PredictInput& input) {
    scores_.resize(static_cast<size_t>(input.batch));
    try {
      model.predict(input, scores_);
      return {Code::kOk, "", scores_};
    } catch (const Error& e) {
      return {e.code() == Code::kOk ? Code::kInternal : e.code(), e.what(), {}};
    } catch (const std::exception& e) {
      return {Code::kInternal, e.what(), {}};
    }
  }

  Metrics& metrics_;
  MergedBatch merged_;
  std::vector<const InferRequest*> requests_;
  std::vector<float> scores_;
};

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
    samples_ += job.request.batch;
    queue_.push_back({std::move(job), Clock::now() + options_.max_wait});
    // Those between wait for the batch that the first one has opened.
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

std::vector<Job> Batcher::take() {
  std::vector<Job> jobs;
  int64_t samples = 0;
  size_t ids = 0;
  while (!queue_.empty()) {
    const Job& next = queue_.front().job;
    const bool fits = samples + next.request.batch <= options_.max_batch && ids + next.request.values.size() <= kMaxIds;
    if (!jobs.empty() && (!fits || next.model != jobs[0].model)) break;
    samples += next.request.batch;
    ids += next.request.values.size();
    jobs.push_back(std::move(queue_.front().job));
    queue_.pop_front();
  }
  samples_ -= samples;
  return jobs;
}

void Batcher::work() {
  BatchRunner runner(metrics_);
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return;
    if (!ready()) {
      const auto due = queue_.front().due;  // a copy: another worker may take the request meanwhile
      wake_.wait_until(lock, due);
      continue;
    }
    std::vector<Job> jobs = take();
    const bool more = !queue_.empty();
    lock.unlock();
    if (more) wake_.notify_one();
    runner.answer(jobs);
    jobs.clear();  // requests and models go without the lock
    lock.lock();
  }
}

}  // namespace tessera::serve
