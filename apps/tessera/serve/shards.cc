#include "serve/shards.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include "tessera/error.h"

namespace tessera::serve {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRetryPause = std::chrono::milliseconds(100);  // between attempts that fail at once
// time for a successor to open while its predecessor closes
constexpr auto kSettle = std::chrono::seconds(1);

std::shared_ptr<ProcessGroup> meet(const Runtime& runtime, const ShardOptions& options) {
  ProcessGroupOptions group{.backend = options.backend, .timeout_s = options.timeout_s};
  return ProcessGroup::connect(runtime, options.where, group);
}

ShardedPredictorOptions sharded_options(const ShardOptions& options) {
  return {.kernel = options.kernel,
          .dense_precision = options.dense_precision,
          .plan = options.plan,
          .keep_alive_s = std::min(2.0, options.timeout_s / 4)};
}

std::shared_ptr<ShardedPredictor> open_together(const Runtime& runtime, const ShardOptions& options) {
  return options.make(
      runtime, [&] { return open_packed_model(options.model); }, meet(runtime, options), sharded_options(options));
}

// Blocks SIGTERM and SIGINT, to be polled by wait(). Must be created before other threads, which inherit the mask.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set_, signal);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // Waits for one of them, at most this long. SIGHUP concerns only rank 0.
  bool wait(std::chrono::milliseconds most) const {
    const timespec limit{most.count() / 1000, (most.count() % 1000) * 1000000};
    const int signal = sigtimedwait(&set_, nullptr, &limit);
    return signal == SIGTERM || signal == SIGINT;
  }

 private:
  sigset_t set_{};
};

// State shared by the threads of a rank. Each thread knocks until rank 0 lets it in, then serves one model while the
// next thread knocks.
class ShardRank {
 public:
  ShardRank(const RuntimeOptions& runtime, const ShardOptions& options, Log& log)
      : runtime_(runtime), options_(options), log_(log) {
    if (!options.follow.empty()) follower_.emplace(runtime_, options.follow, follow_ranks(runtime_, options));
  }

  int run() {
    knock();
    bool told = false;
    while (true) {
      told |= signals_.wait(std::chrono::milliseconds(100));
      const std::lock_guard lock(mutex_);
      if (serving_ > 0) continue;
      if (told || (finished_ && Clock::now() - alone_since_ > kSettle)) return 0;
      if (Clock::now() - alone_since_ < std::chrono::duration<double>(options_.patience_s)) continue;
      log_.write(Level::kError, "rank_0_gone", {{"rank", rank()}, {"error", trouble_}});
      return 1;
    }
  }

 private:
  int64_t rank() const { return options_.where.rank; }

  void knock() {
    std::thread([this] { serve_one(); }).detach();
  }
  // Called by one thread at a time.
  std::shared_ptr<ShardedPredictor> open() {
    return follower_ ? follower_->open(meet(runtime_, options_)) : open_together(runtime_, options_);
  }
  void serve_one() {
    std::shared_ptr<ShardedPredictor> model;
    while (!model) {
      try {
        model = open();
      } catch (const std::exception& e) {
        log_.write(Level::kDebug, "not_met", {{"rank", rank()}, {"error", e.what()}});
        {
          const std::lock_guard lock(mutex_);
          trouble_ = e.what();
        }
        std::this_thread::sleep_for(kRetryPause);
      }
    }
    begin(*model);
    knock();
    std::string loss;
    try {
      model->serve_shard();
    } catch (const std::exception& e) {
      loss = e.what();
    }
    const std::string version = model->model().version;
    model.reset();
    end(version, loss);
  }
  void begin(const Predictor& model) {
    log_.write(Level::kInfo, "shards_loaded", {{"rank", rank()}, {"version", model.model().version}});
    const std::lock_guard lock(mutex_);
    ++serving_;
    finished_ = false;
  }
  void end(const std::string& version, const std::string& loss) {
    log_.write(loss.empty() ? Level::kInfo : Level::kWarning, loss.empty() ? "shards_unloaded" : "shards_lost",
               {{"rank", rank()}, {"version", version}, {"error", loss}});
    const std::lock_guard lock(mutex_);
    --serving_;
    alone_since_ = Clock::now();
    finished_ = loss.empty();
  }

  const EndSignals signals_;
  const Runtime runtime_;
  const ShardOptions& options_;
  Log& log_;
  std::optional<ShardFollower> follower_;
  std::mutex mutex_;
  int serving_ = 0;
  bool finished_ = false;  // rank 0 said goodbye
  Clock::time_point alone_since_ = Clock::now();
  std::string trouble_ = "it was never there";
};

}  // namespace

std::shared_ptr<Predictor> open_sharded(const Runtime& runtime, const ShardOptions& options) {
  return open_together(runtime, options);
}

FollowRanks follow_ranks(const Runtime& runtime, const ShardOptions& options) {
  return {.meet = [&] { return meet(runtime, options); },
          .sharded = sharded_options(options),
          .make = options.make,
          .whole_tables = options.whole_tables};
}

int serve_shards(const RuntimeOptions& runtime, const ShardOptions& options, Log& log) {
  // Never destroyed, because a knocking thread uses it until the process ends.
  auto* rank = new ShardRank(runtime, options, log);
  return rank->run();
}

}  // namespace tessera::serve
