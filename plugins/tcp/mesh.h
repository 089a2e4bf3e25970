// The mesh of a group: a data and a control connection between each pair of ranks.
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
  double timeout_s = 30;  // named in messages; also the limit for unacknowledged data
  std::chrono::steady_clock::time_point deadline;
  Proxied proxied;
};

// Connects a rank to the others. It listens as soon as it is made, so that its address can be announced before anybody
// connects.
class MeshBuilder {
 public:
  // Listens at `own`'s address and any port. Throws Failure(TSR_UNAVAILABLE) if that is impossible.
  MeshBuilder(sdk::Host host, std::string token, const Address& own);
  ~MeshBuilder();
  Address address() const;

  // Asks the rank's teacher, which listens at `where`, for everybody's address (kToldByRank0). The teacher answers in
  // its connect(). `options` has no members; the failures are those of connect().
  std::vector<Address> learn(const MeshOptions& options, int32_t world_size, const Address& where);

  // Calls lower ranks and answers higher ones. The result is by rank; this rank's own entry is empty. Call it once.
  // Throws Failure(TSR_DEADLINE_EXCEEDED) that names the ranks that did not connect.
  std::vector<Link> connect(const MeshOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::tcp
