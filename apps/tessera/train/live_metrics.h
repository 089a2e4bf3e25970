// What a job that trains is at, for Prometheus: an HTTP server of rank 0's that answers GET /metrics.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serve/request_handler.h"
#include "serve/server.h"
#include "tessera/train_job.h"

namespace tessera::cli {

// "[ADDRESS:]PORT", as --metrics takes it; port 0: a free one. kInvalidArgument: neither.
serve::ServerOptions metrics_address(const std::string& text);

// [any-thread] is handle(), which the server calls; all else is the training thread's.
class LiveMetrics : private serve::RequestHandler {
 public:
  // Listens and answers from now on. `checkpoints`: whose newest one's age is told; empty: none. kUnavailable: the port
  // is in use.
  LiveMetrics(const serve::ServerOptions& address, std::string checkpoints, int64_t steps);
  ~LiveMetrics() override;

  std::string url() const { return server_.url() + "/metrics"; }
  // Seconds since the job began: `stages` by rank; `waited`, what all other ranks together have waited for each rank,
  // empty where the transport does not say.
  void set(const TrainProgress& progress, std::vector<Stages> stages, std::vector<double> waited);
  void set(const TrainValidation& validation);

 private:
  serve::Clock::time_point handle(serve::HttpRequest&& request, const Respond& respond) override;
  serve::HttpResponse overdue() const override;
  std::string text();
  void add_training(std::string& out) const;
  void add_checkpoint(std::string& out) const;

  const std::string checkpoints_;
  const int64_t steps_;
  std::mutex mutex_;  // of these five
  TrainProgress progress_;
  double seconds_ = 0;  // from the start to that
  std::vector<Stages> stages_;
  std::vector<double> waited_;
  TrainValidation validation_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  serve::Metrics counts_;
  serve::Log log_{serve::Level::kError, -1};
  serve::Server server_;
  std::thread thread_;  // the server's
};

}  // namespace tessera::cli
