// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/draft/endpoint.h - base class of an endpoint: another protocol for clients of `tessera serve`.
//
// abi/draft/endpoint.h is the specification.
//
//   class Pigeons : public Endpoint {
//     std::string start(const EndpointServer& server) override { ... server.handle(request, respond); ... }
//     void stop() override { ... }
//   };
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/abi/draft/endpoint.h"
#include "tessera/sdk/plugin.h"
#include "tessera/sdk/structs.h"

namespace tessera::sdk {
inline namespace v1 {

// True for a header or metadata key that only a proxy or a web page adds; a request with one is not `local`. It ignores
// case, and covers Forwarded, Via, Origin, X-Real-IP, names with "forwarded", and others that name the client.
inline bool tells_of_a_proxy(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::array<std::string_view, 6> kEnds = {"real-ip", "client-ip",     "clientip",
                                                     "user-ip", "connecting-ip", "external-address"};
  return lower == "via" || lower == "origin" || lower.find("forwarded") != std::string::npos ||
         std::any_of(kEnds.begin(), kEnds.end(), [&](std::string_view end) { return lower.ends_with(end); });
}

struct EndpointRequest {
  std::string method, target, authorization;  // authorization: "Bearer TOKEN", or empty
  std::string_view body;
  std::optional<int64_t> json_bytes;  // size of the body's JSON, which tensors follow
  bool local = false;                 // from this host, and not forwarded for somebody else
};

// Valid during the call that passes it.
struct EndpointResponse {
  int32_t status = 200;
  std::string_view json;  // unless status is 200: {"error": "one sentence"}
  std::string_view tensors;
};

// Can be copied freely, and used until stop() has returned.
class EndpointServer {
 public:
  using Respond = std::function<void(const EndpointResponse&)>;  // must neither wait nor throw

  explicit EndpointServer(const tsr_endpoint_server& server) : server_(read_struct(server)) {}

  // [any-thread] `respond` is called exactly once, within this call or later by another thread.
  void handle(const EndpointRequest& request, Respond respond) const {
    auto context = std::make_unique<Respond>(std::move(respond));
    const tsr_endpoint_request asked{sizeof(asked),
                                     request.local ? TSR_ENDPOINT_LOCAL : 0,
                                     request.method.c_str(),
                                     request.target.c_str(),
                                     request.authorization.c_str(),
                                     request.body.data(),
                                     static_cast<int64_t>(request.body.size()),
                                     request.json_bytes.value_or(-1)};
    server_.handle(server_.self, &asked, &EndpointServer::respond, context.release());
  }

  std::string host() const { return server_.host; }
  std::string tls_cert() const { return server_.tls_cert == nullptr ? "" : server_.tls_cert; }  // "": no TLS
  std::string tls_key() const { return server_.tls_key == nullptr ? "" : server_.tls_key; }
  int64_t max_body_bytes() const { return server_.max_body_bytes; }
  int64_t max_bytes() const { return server_.max_bytes; }

 private:
  static void respond(void* context, const tsr_endpoint_response* given) {
    const std::unique_ptr<Respond> respond(static_cast<Respond*>(context));
    const tsr_endpoint_response r = read_struct(*given);
    const std::string_view body(static_cast<const char*>(r.body), static_cast<size_t>(r.body_bytes));
    const auto json = static_cast<size_t>(r.json_bytes < 0 ? r.body_bytes : r.json_bytes);
    (*respond)({r.status, body.substr(0, json), body.substr(json)});
  }

  tsr_endpoint_server server_;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  // starts to listen; returns the clients' address: "grpc://127.0.0.1:8001"
  virtual std::string start(const EndpointServer& server) = 0;
  virtual void stop() = 0;  // returns when all requests are answered

  static constexpr const char* kKind = TSR_ENDPOINT_KIND;
  template <class C>
  static const tsr_endpoint table;

 private:
  template <class C>
  static tsr_code start_slot(void* self, const tsr_endpoint_server* server, const char** url, tsr_error* err) noexcept {
    return guard(err, [&] {
      Endpoint& endpoint = *static_cast<C*>(self);
      endpoint.url_ = endpoint.start(EndpointServer(*server));
      *url = endpoint.url_.c_str();
    });
  }
  template <class C>
  static tsr_code stop_slot(void* self, tsr_error* err) noexcept {
    return guard(err, [&] { static_cast<Endpoint&>(*static_cast<C*>(self)).stop(); });
  }

  std::string url_;
};

template <class C>
constexpr tsr_endpoint Endpoint::table = {sizeof(tsr_endpoint), 0, &start_slot<C>, &stop_slot<C>};

}  // namespace v1
}  // namespace tessera::sdk
