// What a server asks for each HTTP request: whoever answers knows no socket, and the server no route.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serve/log.h"
#include "serve/metrics.h"

namespace tessera::serve {

using Clock = std::chrono::steady_clock;

struct HttpRequest {
  std::string method, target, body;
  std::string json_bytes;        // the header Inference-Header-Content-Length; empty: absent
  std::string content_encoding;  // empty: absent
  std::string authorization;     // empty: absent
  bool local = false;            // from this host, and not handed on by a proxy or a web page
  Clock::time_point arrived{};   // its last byte; unset: just now
};

struct HttpResponse {
  int status = 200;
  std::string body;
  const char* content_type = "application/json";
  std::optional<size_t> json_bytes;  // header Inference-Header-Content-Length
  const char* allow = nullptr;       // header Allow
  const char* challenge = nullptr;   // header WWW-Authenticate
  bool retry = false;                // header Retry-After
  bool inference = false;            // its time counts
  std::optional<Failure> failure;
  std::string sentence;         // of the failure, for the log
  std::string_view model = {};  // the served one that this is about, for the log: a view of a name that stays

  static HttpResponse json(std::string body);
  static HttpResponse failed(int status, Failure failure, const std::string& sentence);
  static HttpResponse unavailable(Failure failure, const std::string& sentence);  // 503, to be asked again later
  static HttpResponse not_found(const std::string& sentence);
  static HttpResponse not_allowed(const std::string& method, const char* allow);
  static HttpResponse prometheus(std::string text);  // of Prometheus' text format
};

// There is no memory for a request just now.
HttpResponse out_of_memory();

// Counts and logs the response to a request whose last byte came at `start`. [any-thread]
void count(Clock::time_point start, const HttpResponse& response, Metrics& metrics, Log& log);

// The target without query and final slash.
std::string_view path_of(std::string_view target);

// All [any-thread].
class RequestHandler {
 public:
  // Called once: within handle(), or later by a thread of the handler's.
  using Respond = std::function<void(HttpResponse)>;

  virtual ~RequestHandler() = default;
  // Returns when the response is due: who asked answers with overdue() then, and drops what comes later.
  virtual Clock::time_point handle(HttpRequest&& request, const Respond& respond) = 0;
  virtual HttpResponse overdue() const = 0;
  // The server ends. Requests are still answered.
  virtual void end() {}
  // The number of open connections. Set before the first request.
  virtual void count_connections(const std::function<size_t()>&) {}
};

}  // namespace tessera::serve
