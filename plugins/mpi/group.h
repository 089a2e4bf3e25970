// MPI as a collective/1 component: connects ranks, and turns operations into lanes for the engine.
#pragma once

#include <memory>

#include "engine.h"
#include "tessera/sdk/collective.h"

namespace tessera::mpi {

class Group final : public sdk::Group {
 public:
  explicit Group(EngineOptions options) : engine_(std::move(options)) {}

  int32_t rank() const override { return engine_.rank(); }
  int32_t world_size() const override { return engine_.world_size(); }
  std::unique_ptr<sdk::Group> split(int32_t color) override;
  sdk::Work* all_to_all_v(const DLTensor& send, sdk::Counts send_counts, const DLTensor& recv, sdk::Counts recv_counts,
                          const sdk::CollectiveCall& call) override;
  sdk::Work* all_reduce(const DLTensor& inout, int32_t op, const sdk::CollectiveCall& call) override;
  sdk::Work* reduce_scatter_v(const DLTensor& send, sdk::Counts counts, const DLTensor& recv, int32_t op,
                              const sdk::CollectiveCall& call) override;
  sdk::Work* all_gather_v(const DLTensor& send, const DLTensor& recv, sdk::Counts counts,
                          const sdk::CollectiveCall& call) override;
  sdk::Work* broadcast(const DLTensor& inout, int32_t root, const sdk::CollectiveCall& call) override;
  sdk::Work* barrier(const sdk::CollectiveCall& call) override;
  void abort(const char* reason) noexcept override { engine_.abort(reason); }
  uint64_t bytes_sent() const override { return engine_.bytes_sent(); }
  int32_t host_of(int32_t rank) const override;

  // The group of those with this rank's color >= 0 (null: -1). It gets the timeout, of this exchange too, and how to
  // wait and send from `how`.
  std::unique_ptr<Group> split(int32_t color, const char* label, const EngineOptions& how);

 private:
  // Fills in an operation and starts it. A refusal in `fill` ends the group on all ranks, who would wait otherwise.
  template <class Fill>
  sdk::Work* run(OpKind kind, const DLTensor* typed, const sdk::CollectiveCall& call, Fill&& fill);

  Engine engine_;
};

class Mpi final : public sdk::Collective {
 public:
  static constexpr uint32_t kCapabilities = TSR_COLLECTIVE_HOST_MEMORY_ONLY | TSR_COLLECTIVE_LAUNCHES;

  // Options: spin_us, how long a waiting rank tries before it sleeps; negative: 1000, or 50 where the host has more
  // ranks than processors. max_message, bytes: what is larger goes in several messages.
  explicit Mpi(const sdk::Setup& setup);
  // Refuses processes that no launcher of MPI jobs has started.
  static void probe(sdk::Host host);
  std::unique_ptr<sdk::Group> connect(const tsr_rendezvous& where) override;

 private:
  double spin_us_;
  size_t max_message_;
};

}  // namespace tessera::mpi
