// A whole server in this process, with a made-up model, on a free port.
#pragma once

#include <memory>
#include <thread>

#include "fake_predictor.h"
#include "http_client.h"
#include "serve/handler.h"
#include "serve/server.h"

namespace tessera::serve {

inline constexpr const char* kInfer = "/v2/models/fake/infer";

struct RunningOptions {
  ServerOptions server;
  ServiceOptions service{.deadline = std::chrono::seconds(20)};
  BatcherOptions batcher;
};

class RunningServer {
 public:
  explicit RunningServer(RunningOptions options = {})
      : server_(free_port(options.server), metrics_, log_),
        models_({{"", [this] { return model_; }}}, metrics_, log_),
        batcher_(options.batcher, metrics_),
        service_(options.service, models_, batcher_),
        handler_(service_, models_, batcher_, metrics_),
        thread_([this] { server_.run(handler_); }) {}
  ~RunningServer() {
    model_->let_go();
    end_and_wait();
    batcher_.stop();
  }

  int port() const { return server_.port(); }
  FakePredictor& model() { return *model_; }
  Server& server() { return server_; }
  void end_and_wait() {
    server_.end();
    if (thread_.joinable()) thread_.join();
  }
  std::string metrics() { return Client(port()).ask(Client::get("/metrics", "Connection: close\r\n")).body; }

 private:
  static ServerOptions free_port(ServerOptions options) {
    options.port = 0;
    return options;
  }

  Metrics metrics_;
  Log log_{Level::kError, -1};
  std::shared_ptr<FakePredictor> model_ = std::make_shared<FakePredictor>();
  Server server_;
  ModelRepository models_;
  Batcher batcher_;
  ModelService service_;
  Handler handler_;
  std::thread thread_;
};

}  // namespace tessera::serve
