// From an HTTP request to its response: the routes, and the way of an inference request through parser, check, queue
// and model. Knows no socket.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "serve/bad_ids.h"
#include "serve/batcher.h"
#include "serve/metrics.h"
#include "serve/model_holder.h"
#include "serve/protocol.h"
#include "serve/request_handler.h"

namespace tessera::serve {

struct HandlerOptions {
  std::string name;                          // what the model is called here; empty: as it was packed
  std::chrono::milliseconds deadline{1000};  // of a request, from its last byte; a client may ask for less
  int64_t max_samples = 1024;                // of one request
};

// Requests are answered within handle(), or later by a thread of the batcher or the holder.
class Handler : public RequestHandler {
 public:
  Handler(const HandlerOptions& options, ModelHolder& models, Batcher& batcher, Metrics& metrics);

  Clock::time_point handle(HttpRequest&& request, const Respond& respond) override;
  HttpResponse overdue() const override;
  void end() override { ending_ = true; }  // not ready any more
  void count_connections(const std::function<size_t()>& connections) override { connections_ = connections; }

 private:
  HttpResponse get(std::string_view path);
  HttpResponse model_get(std::string_view rest);
  HttpResponse ready() const;
  HttpResponse metrics_text() const;
  Clock::time_point infer(std::string_view path, HttpRequest&& request, const Respond& respond);
  Clock::time_point submit(const std::shared_ptr<Predictor>& model, InferRequest&& request, const Respond& respond);
  HttpResponse answered(const std::shared_ptr<Predictor>& model, const InferRequest& request, const Answer& answer);
  Clock::time_point reload(const HttpRequest& request, const Respond& respond);
  const std::string& name_of(const Predictor& model) const;
  std::optional<HttpResponse> unknown(const Predictor& model, std::string_view name, std::string_view version) const;

  // How the model's data were encoded; null: it does not say. Read from its description once.
  std::shared_ptr<const data::Columns> columns_of(const std::shared_ptr<Predictor>& model);

  const HandlerOptions options_;
  ModelHolder& models_;
  Batcher& batcher_;
  Metrics& metrics_;
  BadIds bad_ids_;
  std::function<size_t()> connections_;
  std::atomic<bool> ending_{false};
  std::mutex columns_mutex_;
  std::weak_ptr<Predictor> columns_model_;  // whose columns_ are
  std::shared_ptr<const data::Columns> columns_;
};

}  // namespace tessera::serve
