// Headers and payloads: every rank's ids go to their owners, in one exchange where payloads are small, otherwise in
// two.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "distributed/job_fingerprint.h"
#include "distributed/joined_exchange.h"
#include "distributed/received_batch.h"
#include "distributed/routed_batch.h"
#include "distributed/stopwatch.h"
#include "tessera/process_group.h"
#include "wiring/rank_grid.h"
#include "wiring/wiring.h"

namespace tessera {

// The sentence that other ranks get about an exception here.
inline std::string said_of(const std::exception& e) {
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr ? "it has no memory left" : e.what();
}

struct IdMessages {
  std::vector<PeerHeader> headers;  // by peer
  Buffer header_send{DType::kUInt8}, header_recv{DType::kUInt8};
  std::vector<int64_t> header_counts;
  RankGrid grid;               // the way of the headers, and of joined exchanges
  int64_t inline_payload = 0;  // capacity after each header, in bytes
  Buffer payload_recv{DType::kUInt8};
  std::vector<int64_t> payload_recv_bytes;  // by peer
  bool in_second = false;                   // a payload was larger than that: all came in a second exchange
  Work travel;                              // headers, later payloads, on their way
  std::vector<const uint8_t*> payloads;     // as they arrived, by peer
  bool all_finished = false, any_finished = false;
  // Exchanges that take the way of the grid, and what headers on their way to other ranks say of them.
  bool joins_ids = false, joins_rows = false;
  std::vector<int64_t> relayed_rows;  // JoinedSizes::relayed
  JoinedExchange joined{DType::kUInt8};
  // The bytes from this rank to another one: headers with their inline payloads, and payloads if the inline ones were
  // too small.
  int64_t payload_to(const RoutedBatch& batch, int peer) const {
    if (!in_second) return 0;
    const auto& hops = joined.by_rank();
    return joins_ids ? hops.home_and_relay[peer] + hops.relay_and_owner[peer] : batch.payload_bytes[peer];
  }
  int64_t bytes_to(const RoutedBatch& batch, int own, int peer) const {
    return grid.blocks_between(own, peer) * (kHeaderBytes + inline_payload) + payload_to(batch, peer);
  }
};

class InputExchange {
 public:
  // Ranks whose fingerprints differ find out in the first header. `steps`:
  // where the batches' steps go on, if not in `group` too: others may wait there for a rank that fails here.
  // `join_rows`: which rows are joined later; the headers tell their sizes.
  InputExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, const JobFingerprint& job,
                JoinExchanges join_rows = JoinExchanges::kNever, std::shared_ptr<ProcessGroup> steps = nullptr);

  // Sends this rank's payload and takes everybody's, in three calls: each but the first ends the exchange that the one
  // before it began. Other exchanges may make the same calls in between, so that all are in flight at once.
  // `error`: why this rank has no batch to offer (empty: it has); the step then ends on all ranks with
  // Error(kInvalidArgument) and that text, behind "rank N: ". `finished`: this rank has no further batches. Any other
  // error ends the job on all ranks, but for other tables or plans, which all ranks see.
  void send_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages);
  void send_payloads(const RoutedBatch& batch, const std::string& error, IdMessages& messages, Stopwatch& watch);
  void finish(const RoutedBatch& batch, IdMessages& messages, ReceivedBatch& received, Stopwatch& watch);
  // Ends what other ranks wait for here.
  void abort(const std::string& reason) const { group_->abort(reason); }
  // And in the steps of the batches that were taken in.
  void abort_with_steps(const std::string& reason) const;

  const ProcessGroup& group() const { return *group_; }
  // True if RoutedBatch::rows_wanted is needed.
  bool may_join_rows() const { return !grid_.is_direct() && join_rows_ != JoinExchanges::kNever; }

 private:
  template <class Body>
  void guarded(const Body& body) const;
  // Returns the bytes of all headers of the first exchange.
  int64_t write_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages);
  // One of the two exchanges of headers through a grid, or the only one.
  Work start_headers(IdMessages& messages, int64_t bytes, const char* label) const;
  void pass_headers_on(IdMessages& messages, Stopwatch& watch) const;
  void read_relayed(int64_t block, IdMessages& messages) const;
  int64_t checked_payload(const PeerHeader& h, int from, int to) const;
  bool read_headers(const RoutedBatch& batch, IdMessages& messages);
  [[noreturn]] void refuse_other_job(int peer);
  static Tensor payloads_of(IdMessages& messages);
  void start_payloads(const RoutedBatch& batch, IdMessages& messages) const;
  [[noreturn]] void share_error(const std::string& mine);

  std::shared_ptr<ProcessGroup> group_, steps_;
  const RankWiring& own_;
  const JobFingerprint& job_;
  const RankGrid grid_;
  const JoinExchanges join_rows_;
  // The capacity of the inline payload. It follows the largest payload of the exchange before, which all headers tell,
  // so that all ranks know it without asking.
  int64_t inline_payload_ = 0;
};

}  // namespace tessera
