// HTTP/1.1 over TCP or TLS: listens, reads requests within limits, passes them to a RequestHandler and writes its
// responses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/request_handler.h"

namespace tessera::serve {

struct ServerOptions {
  std::string host = "127.0.0.1";                  // a numeric address; 0.0.0.0 and :: mean all
  int port = 8000;                                 // 0: choose a free port
  int threads = 1;                                 // threads that read, parse and write
  size_t max_connections = 1024;                   // connections open at once; more get 503
  size_t max_body = size_t{16} << 20;              // bytes of one request; 413 beyond
  size_t max_bodies = size_t{256} << 20;           // bytes of all requests under way, as they arrive; 503 beyond
  size_t max_header = 16384;                       // bytes of a header; 431 beyond
  size_t max_fields = 100;                         // fields of a header; 431 beyond
  std::chrono::milliseconds read_timeout{10000};   // from a request's first byte to its last; then 408
  std::chrono::milliseconds write_timeout{10000};  // for writing a response
  std::chrono::milliseconds idle_timeout{60000};   // between requests of a connection; then it is closed
  std::string tls_cert, tls_key;                   // PEM files; both or none

  static constexpr size_t kTurnedAway = 64;  // surplus connections that are told so; any more are closed
};

class Server {
 public:
  // Listens. Throws kInvalidArgument for a bad address, certificate or key; kUnavailable if the port is in use or not
  // allowed.
  Server(const ServerOptions& options, Metrics& metrics, Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  std::string url() const;  // for example "http://127.0.0.1:8000"

  // SIGTERM and SIGINT call end(); a second one ends the process. SIGHUP calls `hangup`. Call this before run().
  void watch_signals(std::function<void()> hangup);
  // Answers until end() was called and the last connection is closed. `handler` gets no request after that. Until the
  // server is destroyed, it may still respond to an overdue one.
  void run(RequestHandler& handler);
  // [any-thread] Accepts no new connections, answers those accepted, then closes. The timeouts bound how long this
  // takes.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::serve
