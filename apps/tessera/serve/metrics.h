// The server's counters, in the format that Prometheus reads (text format 0.0.4).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/data.h"

namespace tessera::serve {

// The reason why a request failed.
enum class Failure {
  kBadRequest,   // 400: the request is invalid
  kBadHttp,      // 400, 405, 411, 415: not HTTP that this server speaks
  kNotFound,     // 404
  kTooLarge,     // 413, 431
  kSlowSender,   // 408
  kForbidden,    // 403
  kNoToken,      // 401: no token, or a wrong one
  kQueueFull,    // 503
  kDeadline,     // 503
  kUnavailable,  // 503: no model, or one of its ranks is lost
  kBusy,         // 503: too many connections, too many bytes of requests, or no memory
  kInternal,     // 500
};
constexpr int kFailures = 12;
const char* to_string(Failure failure);

// Counts values up to and including each bound, as Prometheus wants them.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void add(double value);  // [any-thread]
  void print(std::string& out, const char* name, const char* help) const;

 private:
  std::span<const double> bounds_;             // static, ascending
  std::vector<std::atomic<uint64_t>> counts_;  // the last one counts values beyond all bounds
  std::atomic<uint64_t> millionths_{0};        // the sum of all values
};

// Values that are read when somebody asks for the metrics.
struct Gauges {
  size_t queue = 0;        // requests that wait in the queue
  size_t connections = 0;  // open connections
  struct Model {
    std::string name, version;
    std::vector<std::pair<std::string, uint64_t>> bad_ids;  // per table
    std::vector<UnknownIds> unknown_ids = {};               // per column with a vocabulary
    struct Followed {
      int64_t number = 0;  // number of the publication
      double age_s = 0;    // seconds since it was published
      int64_t updates = 0, refused = 0;
    };
    std::optional<Followed> followed = std::nullopt;  // set for a model that changes while it is served
  };
  std::vector<Model> models;  // loaded models
  struct Histories {
    int64_t users, bytes, forgotten, events, refused, unknown_users;
  };
  std::optional<Histories> histories = std::nullopt;  // set if the server keeps histories
};

class Metrics {
 public:
  Metrics();
  // All of these are [any-thread].
  void response(int status);
  void failure(Failure failure) { failures_[static_cast<size_t>(failure)].fetch_add(1, std::memory_order_relaxed); }
  // seconds of an inference request, from its last byte to its answer
  void answered(double seconds) { latency_.add(seconds); }
  void batch(size_t requests, int64_t samples, double seconds);
  void reload(bool done) { (done ? reloads_ : failed_reloads_).fetch_add(1, std::memory_order_relaxed); }
  std::string text(const Gauges& gauges) const;

 private:
  static constexpr int kLeastStatus = 100, kStatuses = 500;
  std::array<std::atomic<uint64_t>, kStatuses> responses_{};
  std::array<std::atomic<uint64_t>, kFailures> failures_{};
  std::atomic<uint64_t> reloads_{0}, failed_reloads_{0};
  Histogram latency_, prediction_, batch_requests_, batch_samples_;
};

}  // namespace tessera::serve
