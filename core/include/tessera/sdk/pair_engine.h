// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/pair_engine.h - makes a transport from links between pairs of ranks.
//
// A transport needs a Link (sdk/pair_link.h), which moves bytes between two ranks and notices if one is gone, and a
// connect() that makes one to every other rank. PairGroup<Link> does the rest: all six operations, any number of them
// in flight; deadlines, and names of late ranks; the first failure on all ranks with the same text; abort, goodbye, a
// check that ranks make the same calls, and counters. Only split() is missing: it links the members.
//
// There is no thread. start() sends what the links take at once. wait() sends and receives for all operations in flight
// until its own is done: it spins for a moment, then sleeps in poll(). So while the caller computes, an operation
// proceeds as far as the links' buffers allow. Data lent to the other side stay until that side also waits, and fetches
// them.
//
// Reductions run in rank order, a chunk at a time while it is in the cache, so all ranks and all runs get the same
// bits. After the first operations of a kind nothing is allocated, and no lock is taken unless something fails.
//
// A transport of several source files declares `extern template class sdk::PairEngine<Link>;` in its header, and
// defines `template class sdk::PairEngine<Link>;` in one file, compiled with -O3 for its reductions.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/sdk/fd.h"
#include "tessera/sdk/host_reductions.h"
#include "tessera/sdk/pair_failures.h"
#include "tessera/sdk/pair_link.h"
#include "tessera/sdk/pairwise.h"

namespace tessera::sdk {
inline namespace v1 {

// The time for which operations have waited for each rank, by its name, over all engines that share it. [any-thread]
class WaitedFor {
 public:
  explicit WaitedFor(size_t names) : waited_(names) {}
  void add(int32_t name, PairClock::duration time) {
    waited_[static_cast<size_t>(name)].fetch_add(time.count(), std::memory_order_relaxed);
  }
  double seconds(int32_t name) const {
    const PairClock::duration time(waited_[static_cast<size_t>(name)].load(std::memory_order_relaxed));
    return std::chrono::duration<double>(time).count();
  }

 private:
  std::vector<std::atomic<PairClock::rep>> waited_;
};

template <class Link>
struct PairEngineOptions {
  int32_t rank = 0;
  double timeout_s = 30;       // for operations without a deadline of their own
  double spin_us = 50;         // how long to spin before sleeping
  std::vector<Link> links;     // by rank; this rank's own is unused
  std::vector<int32_t> names;  // by rank, for messages
  // Counts the waits of this rank; null: nothing is counted.
  std::shared_ptr<WaitedFor> waited = nullptr;
  // The largest group whose ranks all exchange directly. Beyond it, operations take rounds and failures spread from
  // rank to rank. It must be the same on all ranks.
  int32_t direct_world = 16;
};

template <IsPairLink Link>
class PairEngine {  // has the interface that PairwiseGroup needs
 public:
  static constexpr const char* kName = Link::kName;
  static constexpr size_t kExchangedWhole = Link::kExchangedWhole;

  struct Reduction : ReducedPiece {  // if it starts after sends, it is at most one chunk
    ReduceFn function = nullptr;     // null: the operation does not reduce
  };

  // Data that this rank sends to itself. They are copied while it waits for other ranks, at the latest in wait().
  struct OwnPiece {
    char* to = nullptr;
    const char* from = nullptr;
    size_t bytes = 0;      // left to copy
    bool is_much = false;  // set by the engine
  };

  // One operation. Its engine owns it and reuses it after wait().
  struct Op final : PairwiseOp {
    PairEngine* engine = nullptr;
    std::vector<PeerTransfer> transfers;  // by rank
    Reduction reduction;
    OwnPiece own;

    size_t reduced = 0;  // final bytes of the reduction
    int slots_full = 0;  // number of ranks whose next chunk has arrived
    int sends_left = 0;  // number of transfers
    int receives_left = 0;
    bool done() const { return sends_left == 0 && receives_left == 0; }

    void wait() override { engine->wait(*this); }
    void recycle() noexcept override { engine->recycle(*this); }
  };

  // Failure(TSR_RESOURCE_EXHAUSTED): the system has no descriptor left.
  explicit PairEngine(PairEngineOptions<Link> options);
  // Says goodbye to all other ranks. If the group is large and its last operation was a barrier, it says goodbye only
  // to near ranks.
  ~PairEngine();
  PairEngine(const PairEngine&) = delete;
  PairEngine& operator=(const PairEngine&) = delete;

  int32_t rank() const { return rank_; }
  int32_t name() const { return name_; }
  int32_t world_size() const { return static_cast<int32_t>(peers_.size()) + 1; }
  int32_t direct_world() const { return direct_world_; }
  double timeout_s() const { return timeout_s_; }
  // Calls f(link) for the link to each other rank.
  template <class F>
  void for_each_link(F&& f) const {
    for (const Peer& peer : peers_) f(peer.link);
  }

  // Returns a cleared operation with its name and deadline. Fill it in and start it, or give it up with recycle().
  Op& prepare(OpKind kind, const CollectiveCall& call);
  void reduces(Op& op, DLDataType dtype, int32_t reduce);
  void keep(Op& op, char* to, const char* from, size_t bytes) { op.own = {to, from, bytes}; }
  void start(Op& op);
  void wait(Op& op);
  void recycle(Op& op) noexcept { free_ops_.push_back(&op); }

  // Poisons the group, tells all others, and throws `code` with that text. The others also report `code`.
  [[noreturn]] void refuse(tsr_code code, const Blame& blame) { fail_as(code, blame); }
  // [any-thread] Poisons the group. It is reported here as TSR_CANCELLED, elsewhere as TSR_ABORTED.
  void abort(const std::string& reason) noexcept;
  void throw_if_failed() const { failure_.throw_if_set(); }

  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  using Clock = PairClock;

  // Another rank: its link and the state of the traffic with it.
  struct Peer {
    int32_t rank = 0;
    int32_t name = 0;
    Link link;
    uint64_t send_sequence = 0, recv_sequence = 0;  // the next operations to look at
    Op* sending = nullptr;                          // null: there is nothing to send, or to receive, now
    Op* receiving = nullptr;
    size_t sent = 0, got = 0;  // bytes of the current operation, including its header
    OpHeader out, in;
    bool left = false;  // it said goodbye
    bool gone = false;  // it ended without a goodbye, in a barrier that did not need it any more
    // The rank that it waits for, which excuses it if it is late now; empty: it has not waited for long.
    Blame waits_for;
    uint64_t waits_in = 0;        // sequence number of the operation in which it waits
    int32_t told = kToldNothing;  // the rank that this rank waits for, as last told to the peer
    uint64_t told_in = 0;         // sequence number of that operation
    bool is_near = true;          // this rank tells it of failures at once, and it tells others
    bool keeps_waiting = false;   // it still owed data when nothing could be moved any more
  };

  // Time for machines to answer a probe: enough for any network and a queue in it.
  static constexpr std::chrono::milliseconds kProbeTime{1000};
  // Minimum time for an answer to a probe, even if the operation has no time left.
  static constexpr std::chrono::milliseconds kLeastProbeTime{100};
  // Grace time: an operation whose data arrived in time is not late because wait() was called late.
  static constexpr std::chrono::milliseconds kWaitGrace{100};
  // Interval at which a spinning rank checks if another has died or given up, because links may not tell.
  static constexpr std::chrono::milliseconds kLook{10};
  // A thread that yields and gets its processor back only after this time shares it with other programs, which used a
  // whole time slice. A thread that sleeps is woken within such a slice. So after this a rank sleeps at once instead of
  // spinning, kSleepsAtOnce times.
  static constexpr std::chrono::microseconds kCrowd{1000};
  static constexpr uint32_t kSleepsAtOnce = 256;
  // Bytes of its own data that a rank copies between two checks of the others. From kMuch bytes on it copies larger
  // slices.
  static constexpr size_t kCopySlice = size_t{32} << 10, kMuchSlice = size_t{256} << 10, kMuch = size_t{8} << 20;
  static constexpr int32_t kToldNothing = -2;  // -1: it waits for an unknown rank
  // Number of unfinished operations, by sequence number.
  static constexpr uint64_t kInFlight = 64;
  Op*& slot(uint64_t sequence) { return in_flight_[sequence % kInFlight]; }

  // These move bytes (detail/pair_engine_moves.h).
  bool copy_own(Op& op, size_t most);
  void exchange(Op& op);
  void next_send(Peer& peer);
  void next_receive(Peer& peer);
  bool progress();
  bool push(Peer& peer);
  bool pull(Peer& peer);
  bool can_push(const Peer& peer) const;
  bool is_lending(const Peer& peer) const;
  bool settle(Peer& peer);
  static size_t contribution_of(const Op& op) { return op.reduction.function != nullptr ? op.reduction.bytes : 0; }
  static size_t payload_of(const Peer& peer) { return peer.got - std::min(peer.got, sizeof(OpHeader)); }
  size_t wanted_from(const Peer& peer) const;
  char* place_for(const Peer& peer);
  void received(Peer& peer, size_t bytes);
  void end_send(Peer& peer);
  void end_receive_if_complete(Peer& peer);
  void end_if_done(Op& op);
  void check_header(Peer& peer);
  void reduce_if_ready(Op& op);
  void reduce_chunk(Op& op);
  char* scratch(int32_t rank);
  static size_t chunk_for(size_t peers);
  void waits_now(const Op& op);
  void has_waited(Clock::duration time);
  bool fall_asleep();
  void sleep(Op& op, Clock::time_point deadline);

  // These handle failures (detail/pair_engine_failures.h).
  [[noreturn]] void fail_as(tsr_code code, const Blame& blame);
  [[noreturn]] void fail_with(tsr_code code, const Blame& blame) { fail_as(code, named(blame)); }
  static Blame named(const Blame& blame) { return {std::string(kName) + ": " + blame.text, blame.rank}; }
  void hear(Peer& peer, const Op& op, int error);
  bool may_have_left(const Peer& peer, const Op& op) const;
  bool ends_in_barrier() const;
  [[noreturn]] void lost(Peer& peer, const Op& op, int error);
  [[noreturn]] void unreachable(Peer& peer, const Op& op, int error);
  [[noreturn]] void late(const Op& op);
  struct Late {
    Blame blame;
    uint64_t in;  // sequence number of the oldest operation for which this rank waits
  };
  Late who_is_late(const Op& op) const;
  struct Debt {   // smaller is worse
    uint64_t in;  // the operation's sequence number
    enum What { kAll, kData, kRest } what;
    bool operator<(const Debt& other) const { return in != other.in ? in < other.in : what < other.what; }
  };
  std::optional<Debt> debt_of(const Peer& peer, const Op& op) const;
  bool is_held_up(const Peer& peer, const Op& op, const Debt& debt) const;
  void probe(const Op& op);
  void waits_no_more(const Op& op) noexcept;
  std::vector<int32_t> unacknowledging() const;
  bool poison(tsr_code code, const Blame& blame) noexcept;
  void tell_all(const Notice& notice) noexcept;
  void fail_others(const Notice& notice) noexcept;
  void tell_failure(bool near) noexcept;

  int32_t rank_;
  int32_t name_;
  double timeout_s_;
  std::chrono::nanoseconds spin_;
  uint32_t sleeps_at_once_ = 0;
  std::vector<Peer> peers_;  // begins after this rank, so that not all ranks send to rank 0 first
  uint64_t next_sequence_ = 0;
  bool newest_is_barrier_ = false;
  Op* in_flight_[kInFlight] = {};
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> free_ops_;
  int32_t direct_world_;
  size_t chunk_;  // bytes of a reduction in one step
  std::unique_ptr<char[]> scratch_;
  std::vector<pollfd> polled_;
  std::atomic<uint64_t> bytes_sent_{0};
  std::shared_ptr<WaitedFor> waited_;

  Fd wake_;  // readable when the group is poisoned
  FirstFailure failure_;
  bool news_ = false;   // another rank has told for whom it waits
  std::mutex telling_;  // guards notices, so that each is sent whole
  Notice failed_;       // the failure as other ranks are told
};

// A group over links: an sdk::Group except for split().
template <class Link>
using PairGroup = PairwiseGroup<PairEngine<Link>>;

}  // namespace v1
}  // namespace tessera::sdk

#include "tessera/sdk/detail/pair_engine_failures.h"
#include "tessera/sdk/detail/pair_engine_moves.h"
