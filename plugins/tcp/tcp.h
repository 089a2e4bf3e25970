// The TCP transport as a collective/1 component. It connects ranks to groups, whose operations the SDK's engine does
// over channels.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "address.h"
#include "channel.h"
#include "tessera/sdk/collective.h"
#include "tessera/sdk/draft/waits.h"
#include "tessera/sdk/pair_engine.h"

extern template class tessera::sdk::PairEngine<tessera::tcp::Channel>;  // instantiated in engine.cc

namespace tessera::tcp {

using Clock = std::chrono::steady_clock;

// State shared by all groups of a job.
struct Job {
  sdk::Host host;
  std::string token;
  double spin_us = 0;
  bool shm = true;
  bool single_copy = true;
  Proxied proxied;
  std::shared_ptr<sdk::WaitedFor> waited;  // indexed by rank in the group that connect() made
};

// Numbers the hosts of the addresses from 0, in the order of the ranks. All loopback addresses are one host.
std::vector<int32_t> hosts_of(const std::vector<Address>& addresses);

// Parses "127.0.0.1:7000"; unset for "". Throws Failure(TSR_INVALID_ARGUMENT).
Proxied parse_proxy(const std::string& text);

// Raises the soft limit on open files if `more` would not fit. Throws Failure(TSR_RESOURCE_EXHAUSTED) if the hard limit
// forbids it.
void ensure_descriptors(int64_t more);

class Group final : public sdk::PairGroup<Channel> {
 public:
  // Connects to the other members, which already listen, and waits until all of them have connected.
  Group(Job job, const GroupId& id, int32_t rank, Members members, class MeshBuilder& mesh, double timeout_s,
        Clock::time_point deadline);
  // A group of one rank with this name; it needs no network.
  Group(Job job, int32_t name, double timeout_s);

  std::unique_ptr<sdk::Group> split(int32_t color, int32_t key, const sdk::CollectiveCall& call) override;
  int32_t host_of(int32_t rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  bool waited_s(std::span<double> seconds) const override;
  int32_t shares_memory_with() const;  // number of other ranks

 private:
  Job job_;
  GroupId id_{};
  Members members_;
  std::vector<int32_t> hosts_;  // per rank
  uint64_t splits_ = 0;
};

class Tcp final : public sdk::Collective {
 public:
  // Options: spin_us, how long a waiting rank polls, while offering its processor to others, before it sleeps; shm,
  // true to let ranks of one host exchange data through shared memory; single_copy, true to let them fetch large pieces
  // from each other's memory, if the kernel allows it; proxy, the ADDRESS:PORT of a proxy for all calls to other ranks,
  // for experiments (proxy.h).
  explicit Tcp(const sdk::Setup& setup)
      : host_(setup.host),
        spin_us_(setup.options.number("spin_us", 50)),
        shm_(setup.options.flag("shm", true)),
        single_copy_(setup.options.flag("single_copy", true)),
        proxied_(parse_proxy(setup.options.string("proxy", ""))) {
    if (!(spin_us_ >= 0 && spin_us_ <= 1e9)) {
      sdk::fail(TSR_INVALID_ARGUMENT, "tcp: option \"spin_us\" must be between 0 and 1e9 us, not ", spin_us_);
    }
  }
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous& where) override;
  const void* extension(std::string_view id) const { return sdk::waits_extension(id); }

 private:
  sdk::Host host_;
  double spin_us_;
  bool shm_;
  bool single_copy_;
  Proxied proxied_;
};

}  // namespace tessera::tcp
