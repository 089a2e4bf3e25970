// An endpoint part (abi/draft/endpoint.h) beside the server's own HTTP: what its clients ask goes the way of every
// request, to the same handler, with the same deadline, counted and logged alike.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "serve/server.h"
#include "tessera/runtime.h"

namespace tessera::serve {

class Endpoint {
 public:
  // Listens, and asks `handler` from now on. `name`: of the part, with its options ("grpc?port=8001"); of `options` it
  // gets address, TLS and limits. Errors: no such part; what it says.
  Endpoint(const Runtime& runtime, const std::string& name, const ServerOptions& options, RequestHandler& handler,
           Metrics& metrics, Log& log);
  // Returns when all is answered. Of `handler`, threads may still call what they were given to respond with.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  const std::string& url() const { return url_; }  // what clients use

 private:
  class Asked;
  ComponentPtr part_;
  std::shared_ptr<Asked> asked_;
  std::string url_;
};

}  // namespace tessera::serve
