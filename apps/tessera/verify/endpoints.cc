// Checks endpoints: start, stop, and an address that is in use. Verify speaks none of their protocols.
#include "tessera/abi/draft/endpoint.h"

#include <atomic>

#include "spawn.h"
#include "verify/check.h"
#include "verify/formulas.h"

namespace tessera::cli::verify {
namespace {

// A server that no client asks.
struct Server {
  Server() {
    raw.struct_size = sizeof(raw);
    raw.self = this;
    raw.handle = [](void* self, const tsr_endpoint_request*, tsr_endpoint_respond respond, void* context) {
      static_cast<Server*>(self)->requests += 1;
      auto answer = sdk::sized<tsr_endpoint_response>();
      answer.code = TSR_UNAVAILABLE;
      answer.output_stride = sizeof(tsr_endpoint_tensor);
      answer.message = "verify answers nothing";
      answer.text = answer.model = answer.version = answer.id = "";
      respond(context, &answer);
    };
    raw.host = "127.0.0.1";
    raw.max_body_bytes = 1 << 20;
    raw.max_bytes = 1 << 24;
  }
  std::atomic<int> requests{0};
  tsr_endpoint_server raw{};
};

// With a port of its own, if it has such an option.
Made make_with_port(Subject& subject, int port) {
  try {
    return subject.make(with_option(subject.what().options, "port", port));
  } catch (const Broken&) {
    return subject.make();
  }
}

std::string start(Subject& subject, const Made& part, const Server& server) {
  const char* url = nullptr;
  subject.asks("start",
               [&](tsr_error* err) { return part.api<tsr_endpoint>().start(part.self(), &server.raw, &url, err); });
  require(url != nullptr && std::string(url).find("://") != std::string::npos, "start gives ",
          url == nullptr ? "NULL" : str_cat('"', url, '"'), " and not an address like \"grpc://127.0.0.1:8001\"");
  return url;
}

void stop(Subject& subject, const Made& part) {
  subject.asks("stop", [&](tsr_error* err) { return part.api<tsr_endpoint>().stop(part.self(), err); });
}

void check_endpoint_turns(Subject& subject) {
  const Server server;
  const int port = free_port();
  for (int turn = 0; turn < 3; ++turn) {  // the address is free again after each stop
    const Made part = make_with_port(subject, port);
    start(subject, part, server);
    stop(subject, part);
  }
  require(server.requests == 0, "it handed ", server.requests.load(), " requests on, though no client asked");
}

void check_endpoint_in_use(Subject& subject) {
  const Server server;
  const int port = free_port();
  const Made first = make_with_port(subject, port), second = make_with_port(subject, port);
  start(subject, first, server);
  const char* url = nullptr;
  subject.doing("start at an address that is in use");
  Call call;
  const tsr_code code = second.api<tsr_endpoint>().start(second.self(), &server.raw, &url, call.out());
  stop(subject, first);
  call.fails(code, "start at an address that is in use");
  require(code == TSR_UNAVAILABLE, "start at an address that is in use fails with ", name_of(code),
          ", but that is TSR_UNAVAILABLE");
}

}  // namespace

std::span<const Check> endpoint_checks() {
  static constexpr const char* kStart = "abi/draft/endpoint.h, tsr_endpoint::start";
  static constexpr Check kChecks[] = {
      {"endpoint.turns", 4, TSR_ENDPOINT_KIND, kStart, 60, check_endpoint_turns},
      {"endpoint.in_use", 4, TSR_ENDPOINT_KIND, kStart, 60, check_endpoint_in_use},
  };
  return kChecks;
}

}  // namespace tessera::cli::verify
