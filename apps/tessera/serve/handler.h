// HTTP as a translator: turns paths, JSON and the bytes after it into the service's questions, and its outcomes into
// responses. It knows no socket.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "serve/batcher.h"
#include "serve/metrics.h"
#include "serve/repository.h"
#include "serve/request_handler.h"
#include "serve/service.h"

namespace tessera::serve {

class Handler : public RequestHandler {
 public:
  // `kept`: the histories that /v1/events adds to; null: none are kept.
  Handler(ModelService& service, const ModelRepository& models, const Batcher& batcher, Metrics& metrics,
          KeptHistories* kept = nullptr);

  Clock::time_point handle(HttpRequest&& request, const Respond& respond) override;
  HttpResponse overdue() const override { return service_.overdue(); }
  void end() override { service_.end(); }
  void count_connections(const std::function<size_t()>& connections) override { connections_ = connections; }

 private:
  HttpResponse now(const Question& question) const;
  HttpResponse get(std::string_view path) const;
  HttpResponse model_get(std::string_view rest) const;
  HttpResponse metrics_text() const;
  HttpResponse index(const std::string& body) const;
  HttpResponse add_events(const HttpRequest& request) const;
  Clock::time_point infer(Question&& question, const HttpRequest& request, bool rows, const Respond& respond);
  Clock::time_point score(const HttpRequest& request, const Respond& respond);
  Clock::time_point change(std::string_view path, const HttpRequest& request, const Respond& respond);

  ModelService& service_;
  const ModelRepository& models_;
  const Batcher& batcher_;
  Metrics& metrics_;
  KeptHistories* kept_;
  std::function<size_t()> connections_;
};

}  // namespace tessera::serve
