// Reports the state of a training job to Prometheus: an HTTP server on rank 0 that answers GET /metrics.
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

// Parses "[ADDRESS:]PORT", the value of --metrics; port 0 means a free one. Throws kInvalidArgument for anything else.
serve::ServerOptions metrics_address(const std::string& text);

// Only handle(), which the server calls, is [any-thread]; everything else belongs to the training thread.
class LiveMetrics : private serve::RequestHandler {
 public:
  // Listens and answers from now on. `checkpoints` is the folder whose newest checkpoint's age is reported; empty:
  // none. Throws kUnavailable if the port is in use.
  LiveMetrics(const serve::ServerOptions& address, std::string checkpoints, int64_t steps);
  ~LiveMetrics() override;

  std::string url() const { return server_.url() + "/metrics"; }
  // Sets seconds since the job began: `stages` per rank; `waited` per rank, the time that all other ranks together have
  // waited for it, empty if the transport does not measure it.
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
  std::mutex mutex_;  // guards these five
  TrainProgress progress_;
  double seconds_ = 0;  // from the start to `progress_`
  std::vector<Stages> stages_;
  std::vector<double> waited_;
  TrainValidation validation_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  serve::Metrics counts_;
  serve::Log log_{serve::Level::kError, -1};
  serve::Server server_;
  std::thread thread_;  // runs the server
};

}  // namespace tessera::cli
