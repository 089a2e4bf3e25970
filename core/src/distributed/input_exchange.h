// Headers and payloads: every rank's ids go to their owners, in one exchange where payloads are small, otherwise in
// two.
#pragma once

#include <memory>
#include <string>

#include "distributed/step.h"
#include "distributed/stopwatch.h"
#include "tessera/process_group.h"
#include "wiring/wiring.h"

namespace tessera {

class InputExchange {
 public:
  // `fingerprint` of tables and plan: ranks whose fingerprints differ find out in the first header. `steps`: where the
  // batches' steps go on, if not in `group` too: others may wait there for a rank that fails here.
  InputExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, uint64_t fingerprint,
                std::shared_ptr<ProcessGroup> steps = nullptr);

  // Sends this rank's payload and takes everybody's; fills the owner side: received pieces, ids, offsets, weights.
  // `error`: why this rank has no batch to offer (empty: it has); the step then ends on all ranks with
  // Error(kInvalidArgument) and that text, behind "rank N: ". `finished`: this rank has run out of batches. Any other
  // error ends the job on all ranks, but for other tables or plans, which all ranks see.
  void run(Step& step, bool finished, const std::string& error, Stopwatch& watch);
  // Ends what other ranks wait for here.
  void abort(const std::string& reason) const { group_->abort(reason); }
  // And in the steps of the batches that were taken in.
  void abort_with_steps(const std::string& reason) const;

  const ProcessGroup& group() const { return *group_; }

 private:
  void send_headers(Step& step, bool finished, bool error, Stopwatch& watch);
  bool read_headers(Step& step);
  void take_payloads(Step& step, Stopwatch& watch);
  [[noreturn]] void share_error(const std::string& mine);
  void unpack(Step& step);
  void unpack_peer(Step& step, int peer, int64_t first_id);
  void unpack_presence(Step& step, int peer, const int32_t* words);
  void check_ids(const Step& step, int peer, int stream, const StreamPiece& piece) const;

  std::shared_ptr<ProcessGroup> group_, steps_;
  const RankWiring& own_;
  const Wiring& wiring_;
  uint64_t fingerprint_;
  // Behind each header. It follows the largest payload of the exchange before, which all headers tell, so that all
  // ranks know it without asking.
  int64_t room_ = 0;
};

}  // namespace tessera
