// Turns an HTTP request into its response: the routes, and the way of an inference request through parser, check, queue
// and model. It knows no socket.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "serve/batcher.h"
#include "serve/metrics.h"
#include "serve/protocol.h"
#include "serve/repository.h"
#include "serve/request_handler.h"

namespace tessera::serve {

struct HandlerOptions {
  std::chrono::milliseconds deadline{1000};  // per request, from its last byte; a client may ask for less
  int64_t max_samples = 1024;                // per request
};

// Requests are answered within handle(), or later by a thread of the batcher or of the holder.
class Handler : public RequestHandler {
 public:
  Handler(const HandlerOptions& options, ModelRepository& models, Batcher& batcher, Metrics& metrics);

  Clock::time_point handle(HttpRequest&& request, const Respond& respond) override;
  HttpResponse overdue() const override;
  void end() override { ending_ = true; }  // reports "not ready" from now on
  void count_connections(const std::function<size_t()>& connections) override { connections_ = connections; }

 private:
  HttpResponse get(std::string_view path);
  HttpResponse model_get(std::string_view rest);
  HttpResponse ready() const;
  HttpResponse metrics_text() const;
  Clock::time_point infer(Found&& found, HttpRequest&& request, bool rows, const Respond& respond);
  Clock::time_point score(HttpRequest&& request, const Respond& respond);
  Clock::time_point submit(const Found& found, InferRequest&& request, const Respond& respond);
  HttpResponse answered(Served& served, const std::shared_ptr<Predictor>& model, const InferRequest& request,
                        const Answer& answer);
  HttpResponse index(const std::string& body) const;
  // Handles /admin/reload and /v2/repository/models/NAME/load and /unload.
  void change(std::string_view path, const HttpRequest& request, const Respond& respond);

  const HandlerOptions options_;
  ModelRepository& models_;
  Batcher& batcher_;
  Metrics& metrics_;
  std::function<size_t()> connections_;
  std::atomic<bool> ending_{false};
};

}  // namespace tessera::serve
