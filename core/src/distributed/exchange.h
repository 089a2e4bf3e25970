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
  Exchange(std::shared_ptr<ProcessGroup> group, const LaneMap& map, uint64_t fingerprint);

  // Sends this rank's payload and takes everybody's; fills the owner side: received pieces, ids, offsets, weights.
  // `error`: why this rank has no batch to offer (empty: it has); the step then ends on all ranks with
  // Error(kInvalidArgument) and that text, behind "rank N: ". `finished`: this rank has run out of batches.
  void inputs(Step& step, bool finished, const std::string& error);

  // Pooled or sequence rows from the owners to the homes: first inside the host, then, where a plan sums rows there,
  // across hosts. Counts are known from the inputs. Other work fits between start and finish.
  Work start_rows_to_home(Step& step);
  void finish_rows_to_home(Step& step, Work first_hop);
  // Their gradients back.
  void rows_to_owner(Step& step);
  // Ends what other ranks wait for here.
  void abort(const std::string& reason) const;

  const ProcessGroup& group() const { return *group_; }

 private:
  void send_headers(Step& step, bool finished, bool error);
  void share_error(const std::string& mine);
  void unpack(Step& step);
  void unpack_peer(Step& step, int peer, const uint8_t* payload, int64_t first_id);
  void unpack_presence(Step& step, int peer, const int32_t* words);
  Work to_home(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const;
  Work to_owner(const ProcessGroup& group, const Hop& hop, Step& step, const char* label) const;
  void check_ids(const Step& step, int peer, int stream, const StreamPiece& piece) const;

  std::shared_ptr<ProcessGroup> group_;
  std::shared_ptr<ProcessGroup> host_group_;  // of the first hop; the same where there is only one
  const LaneMap& map_;
  uint64_t fingerprint_;
};

}  // namespace tessera
