// Exchanges headers and payloads: every rank's ids go to their owners. Small payloads travel with the headers in one
// exchange, larger ones in a second one.
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

// The sentence that other ranks get about an exception on this rank.
inline std::string said_of(const std::exception& e) {
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr ? "it has no memory left" : e.what();
}

struct IdMessages {
  std::vector<PeerHeader> headers;  // by peer
  Buffer header_send{DType::kUInt8}, header_recv{DType::kUInt8};
  std::vector<int64_t> header_counts;
  RankGrid grid;               // the way of the headers and of joined exchanges
  int64_t inline_payload = 0;  // capacity after each header, in bytes
  Buffer payload_recv{DType::kUInt8};
  std::vector<int64_t> payload_recv_bytes;  // by peer
  bool in_second = false;  // a payload was larger than the inline capacity, so all payloads came in a second exchange
  Work travel;             // headers, then payloads, that are on their way
  std::vector<const uint8_t*> payloads;  // received payloads, by peer
  bool all_finished = false, any_finished = false;
  // True if ids or rows take the way of the grid in this step.
  bool joins_ids = false, joins_rows = false;
  // Sizes of rows that this rank relays, from the headers that it passed on: JoinedSizes::relayed.
  std::vector<int64_t> relayed_rows;
  JoinedExchange joined{DType::kUInt8};
  // Bytes of the second exchange from this rank to another one. bytes_to() adds headers and inline payloads.
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
  // Ranks whose fingerprints differ notice it in the first header. `steps`: the group in which the batches' steps run,
  // if it is another one; a rank that fails here also fails the operations in which others wait for it there.
  // `join_rows`: whether rows are joined later; if so, the headers tell their sizes.
  InputExchange(std::shared_ptr<ProcessGroup> group, const RankWiring& own, const JobFingerprint& job,
                JoinExchanges join_rows = JoinExchanges::kNever, std::shared_ptr<ProcessGroup> steps = nullptr);

  // Sends this rank's payload and receives those of all ranks, in three calls. Each call ends the exchange that the
  // previous call began. The same calls of other exchanges may be made in between, so that all are in flight at once.
  // `error`: why this rank has no batch (empty: it has one); the step then fails on all ranks with kInvalidArgument and
  // "rank N: " before that text. `finished`: this rank has no further batches. If tables or plans differ, all ranks see
  // it; any other error ends the job on all ranks.
  void send_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages);
  void send_payloads(const RoutedBatch& batch, const std::string& error, IdMessages& messages, Stopwatch& watch);
  void finish(const RoutedBatch& batch, IdMessages& messages, ReceivedBatch& received, Stopwatch& watch);
  // Fails the operations in which other ranks wait for this one.
  void abort(const std::string& reason) const { group_->abort(reason); }
  // Does so also in the group of the steps.
  void abort_with_steps(const std::string& reason) const;

  const ProcessGroup& group() const { return *group_; }
  // True if send_headers() needs RoutedBatch::rows_wanted.
  bool may_join_rows() const { return !grid_.is_direct() && join_rows_ != JoinExchanges::kNever; }

 private:
  template <class Body>
  void guarded(const Body& body) const;
  // Returns the bytes of all headers of the first exchange.
  int64_t write_headers(const RoutedBatch& batch, bool finished, bool error, IdMessages& messages);
  // Starts an exchange of headers: the only one, or one of the two through a grid.
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
  // The capacity of the inline payload. It follows the largest payload of the previous exchange, which all headers
  // state, so all ranks compute the same capacity.
  int64_t inline_payload_ = 0;
};

}  // namespace tessera
