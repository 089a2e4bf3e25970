// The interface between a server and its handler: the handler knows no socket, and the server knows no route.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "serve/outcome.h"

namespace tessera::serve {

struct HttpRequest {
  std::string method, target, body;
  std::string json_bytes;        // the header Inference-Header-Content-Length; empty: absent
  std::string content_encoding;  // empty: absent
  std::string authorization;     // empty: absent
  bool local = false;            // from this host, and not forwarded by a proxy or a web page
  Clock::time_point arrived{};   // time of its last byte; unset: now
};

struct HttpResponse : Outcome {
  HttpResponse() = default;
  HttpResponse(Outcome outcome);  // its text, or its sentence as JSON, is the body

  std::string body;
  const char* content_type = "application/json";
  std::optional<size_t> json_bytes;  // header Inference-Header-Content-Length
  const char* allow = nullptr;       // header Allow
  const char* challenge = nullptr;   // header WWW-Authenticate

  static HttpResponse not_allowed(const std::string& method, const char* allow);
  static HttpResponse prometheus(std::string text);  // in Prometheus' text format
};

// The target without its query and final slash.
std::string_view path_of(std::string_view target);

// All members are [any-thread].
class RequestHandler {
 public:
  // Called once, within handle() or later by a thread of the handler.
  using Respond = std::function<void(HttpResponse)>;

  virtual ~RequestHandler() = default;
  // Returns the time when the response is due. The caller then answers with overdue() and drops a later response.
  virtual Clock::time_point handle(HttpRequest&& request, const Respond& respond) = 0;
  virtual HttpResponse overdue() const = 0;
  // Tells the handler that the server ends. Requests are still answered.
  virtual void end() {}
  // Provides the number of open connections. Set before the first request.
  virtual void count_connections(const std::function<size_t()>&) {}
};

}  // namespace tessera::serve
