// The ids that all homes sent to this owner, with their offsets, ready for the kernels. Empty bags are left out.
// Buffers only grow.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/id_block.h"
#include "wiring/messages.h"
#include "wiring/wiring.h"

namespace tessera {

// Tells which bags of an id route have ids: bit b % 32 of word b / 32.
struct Presence {
  int64_t bags = 0;
  int64_t full_bags = 0;
  const uint32_t* bits = nullptr;  // in a received payload
  bool has(int64_t bag) const { return bits[bag / 32] >> (bag % 32) & 1; }
};

struct ReceivedBatch {
  bool weighted = false;
  int64_t num_ids = 0, num_offsets = 0;
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  std::vector<IdBlock> id_blocks;     // by peer, then this rank's id routes
  std::vector<int64_t> first_offset;  // of each id block in `offsets`
  // Used on the rank that sums rows of its host for a home elsewhere: by the home's host, then by Wiring::summed_routes
  // of this host.
  std::vector<Presence> presence;
};

// Reads every peer's payload, whose length its header states. `payloads` must live as long as `out` is used. kDataLoss:
// a payload contradicts its header or the wiring. This check keeps a broken peer from making this rank read wild
// memory.
void unpack(const RankWiring& own, std::span<const PeerHeader> headers, std::span<const uint8_t* const> payloads,
            bool weighted, ReceivedBatch& out);

// Returns which bags have ids along an id route of this host, for the home on `home_host` with this rank's local index.
const Presence& presence_of(const Wiring& wiring, const ReceivedBatch& batch, int id_route, int home_host);
// Counts the bags of that home's batch that have ids at any row route of the sum.
int64_t bags_present(const Wiring& wiring, const ReceivedBatch& batch, const HostSum& sum, int home_host);

}  // namespace tessera
