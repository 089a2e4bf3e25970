// MPI as a collective/1 component. It connects ranks to groups, whose operations an Engine does.
#pragma once

#include <memory>

#include "engine.h"
#include "tessera/sdk/collective.h"

namespace tessera::mpi {

class Group final : public sdk::PairwiseGroup<Engine> {
 public:
  using PairwiseGroup::PairwiseGroup;

  std::unique_ptr<sdk::Group> split(int32_t color, int32_t key, const sdk::CollectiveCall& call) override;
  int32_t host_of(int32_t rank) const override;

  // The same, but the new group takes its timeout, polling and message size from `how`.
  std::unique_ptr<Group> split(int32_t color, int32_t key, const sdk::CollectiveCall& call, const EngineOptions& how);
};

class Mpi final : public sdk::Collective {
 public:
  static constexpr uint32_t kFlags = TSR_COLLECTIVE_LAUNCHES;

  // Options: spin_us, how long a waiting rank polls before it sleeps; negative: 1000, or 50 if the host has more ranks
  // than processors. max_message, in bytes: larger data is split into several messages.
  explicit Mpi(const sdk::Setup& setup);
  // Throws Failure unless a launcher of MPI jobs started this process.
  static void probe(sdk::Host host);
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous& where) override;

 private:
  double spin_us_;
  size_t max_message_;
};

}  // namespace tessera::mpi
