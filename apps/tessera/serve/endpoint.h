// An endpoint component (abi/draft/endpoint.h) next to the server's own HTTP. Requests of its clients go to the same
// service, with the same deadline, and are counted and logged in the same way.
#pragma once

#include <memory>
#include <string>

#include "serve/server.h"
#include "serve/service.h"
#include "tessera/runtime.h"

namespace tessera::serve {

class Endpoint {
 public:
  // Listens, and passes requests to `service` from now on. `name` is the component with its options ("grpc?port=8001");
  // address, TLS and limits come from `options`. Throws if there is no such component, and errors of the component.
  Endpoint(const Runtime& runtime, const std::string& name, const ServerOptions& options, Service& service,
           Metrics& metrics, Log& log);
  // Returns when all requests are answered. Threads may still call the `respond` functions that `service` was given.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const std::string& url() const { return url_; }  // address for clients

 private:
  class Asked;
  ComponentPtr part_;
  std::shared_ptr<Asked> asked_;
  std::string url_;
};

}  // namespace tessera::serve
