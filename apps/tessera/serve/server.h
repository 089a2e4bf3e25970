// HTTP/1.1 over TCP or TLS: listens, reads requests within limits, hands them to a RequestHandler and writes what it
// says.
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
  std::string host = "127.0.0.1";                  // a numeric address: 0.0.0.0 and :: are all
  int port = 8000;                                 // 0: one that is free
  int threads = 1;                                 // that read, parse and write
  size_t max_connections = 1024;                   // open at once: 503
  size_t max_body = size_t{16} << 20;              // bytes of one request: 413
  size_t max_bodies = size_t{256} << 20;           // bytes of all requests under way, as they arrive: 503
  size_t max_header = 16384;                       // bytes: 431
  size_t max_fields = 100;                         // of a header: 431
  std::chrono::milliseconds read_timeout{10000};   // from a request's first byte to its last: 408
  std::chrono::milliseconds write_timeout{10000};  // for its response
  std::chrono::milliseconds idle_timeout{60000};   // between requests of a connection: closed
  std::string tls_cert, tls_key;                   // PEM files; both or none

  static constexpr size_t kTurnedAway = 64;  // connections beyond max_connections that are told so; more are closed
};

class Server {
 public:
  // Listens. kInvalidArgument: no address, bad certificate or key; kUnavailable: the port is in use or not allowed.
  Server(const ServerOptions& options, Metrics& metrics, Log& log);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;
  std::string url() const;  // "http://127.0.0.1:8000"

  // SIGTERM and SIGINT end() the server, a second one the process; SIGHUP calls `hangup`. Call before run().
  void watch_signals(std::function<void()> hangup);
  // Answers until it is ended and the last connection is closed. `handler` gets no request after that, but may still
  // respond to one that was overdue, until the server is destroyed.
  void run(RequestHandler& handler);
  // [any-thread] Accepts nobody new, answers what has been accepted, then closes: bounded by the timeouts.
  void end();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::serve
