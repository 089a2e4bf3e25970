// Exchange: headers, then payloads, then rows; one of each for all tables and all strategies. The core's only traffic.
#pragma once

#include <string>

#include "distributed/lanes.h"
#include "distributed/step.h"
#include "tessera/process_group.h"

namespace tessera {

class Exchange {
 public:
  // `fingerprint` of tables and plan: ranks whose fingerprints differ find out in the first header.
  Exchange(std::shared_ptr<ProcessGroup> group, const LaneMap& map, uint64_t fingerprint)
      : group_(std::move(group)), map_(map), fingerprint_(fingerprint) {}

  // Sends this rank's payload and takes everybody's; fills the owner side: received pieces, ids, offsets, weights.
  // `error`: why this rank has no batch to offer (empty: it has); the step then ends on all ranks with
  // Error(kInvalidArgument) and that text, behind "rank N: ". `finished`: this rank has run out of batches.
  void inputs(Step& step, bool finished, const std::string& error);

  // Pooled or sequence rows from the owners to the homes, and their gradients back. Counts are known from the inputs.
  Work rows_to_home(Step& step);
  Work rows_to_owner(Step& step);

  const ProcessGroup& group() const { return *group_; }

 private:
  void send_headers(Step& step, bool finished, bool error);
  void share_error(const std::string& mine);
  void unpack(Step& step);
  void unpack_peer(Step& step, int peer, const uint8_t* payload, int64_t first_id);
  void check_ids(const Step& step, int peer, int stream, const StreamPiece& piece) const;

  std::shared_ptr<ProcessGroup> group_;
  const LaneMap& map_;
  uint64_t fingerprint_;
};

}  // namespace tessera
