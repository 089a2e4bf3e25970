// The mesh of a group: a data and a control connection between every two ranks.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "address.h"
#include "link.h"
#include "tessera/sdk/host.h"
#include "wire.h"

namespace tessera::tcp {

struct MeshOptions {
  GroupId group{};
  int32_t rank = 0;
  Members members;
  double timeout_s = 30;  // for messages, and of unacknowledged data
  std::chrono::steady_clock::time_point deadline;
  Proxied proxied;
};

// Listens from construction on, so that its address can be told before anybody connects.
class MeshBuilder {
 public:
  // At `own`'s address and any port. Failure(TSR_UNAVAILABLE) where that is impossible.
  MeshBuilder(sdk::Host host, std::string token, const Address& own);
  ~MeshBuilder();
  Address address() const;

  // Calls the ranks below, answers those above. By rank; this rank's own entry is empty. Once.
  // Failure(TSR_DEADLINE_EXCEEDED) names the ranks that did not connect.
  std::vector<Link> connect(const MeshOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::tcp
