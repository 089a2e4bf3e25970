// The data path of one group: operations in flight, moved by whoever waits.
//
// There is no thread of its own. start() sends what the channels take at once; wait() sends and receives for all
// operations in flight until its own is done: it tries for a moment, then sleeps in poll(). What was started and not
// yet waited for therefore travels as far as the channels' buffers reach while the caller computes; a large piece for a
// rank of the same host waits until that rank waits, too, and fetches it.
//
// What is exchanged says sdk::PairwiseGroup. Reductions happen in rank order, a chunk at a time while it is in the
// cache: the same bits on all ranks, every run. After the first operations of a kind nothing is allocated; no lock is
// taken unless something fails.
#pragma once

#include <poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel.h"
#include "reduce.h"
#include "tessera/sdk/collective.h"
#include "wire.h"

namespace tessera::tcp {

using Clock = std::chrono::steady_clock;

using sdk::PeerTransfer;

struct Reduction : sdk::ReducedPiece {  // where it comes after sends, it is at most one chunk
  ReduceFn function = nullptr;          // null: the operation does not reduce
};

// What this rank gets from itself: copied while it would wait for others, at the latest in wait().
struct OwnPiece {
  char* to = nullptr;
  const char* from = nullptr;
  size_t bytes = 0;      // still to be copied
  bool streams = false;  // past the cache; set by the engine
};

class Engine;

// One operation. Owned by its engine, used again after wait().
struct Op final : sdk::PairwiseOp {
  Engine* engine = nullptr;
  std::vector<PeerTransfer> transfers;  // by rank
  Reduction reduction;
  OwnPiece own;
  Clock::time_point deadline;
  double timeout_s = 0;

  size_t reduced = 0;  // bytes of the reduction that are final
  int slots_full = 0;  // ranks whose next chunk has arrived
  int sends_left = 0;  // transfers
  int receives_left = 0;
  bool done() const { return sends_left == 0 && receives_left == 0; }

  void wait() override;
  void recycle() noexcept override;
};

struct EngineOptions {
  int32_t rank = 0;
  double timeout_s = 30;       // of operations that do not bring their own
  double spin_us = 50;         // how long to try before sleeping
  std::vector<Channel> links;  // by rank; this rank's own is empty
  std::vector<int32_t> names;  // by rank, for messages
};

class Engine {  // as sdk::PairwiseGroup takes it
 public:
  static constexpr const char* kName = "tcp";
  static constexpr size_t kExchangedWhole = size_t{16} << 10;

  explicit Engine(EngineOptions options);
  ~Engine();  // says goodbye

  int32_t rank() const { return rank_; }
  int32_t name() const { return name_; }
  int32_t world_size() const { return static_cast<int32_t>(peers_.size()) + 1; }
  double timeout_s() const { return timeout_s_; }
  int32_t shares_memory_with() const;  // so many other ranks

  // A cleared operation with its name and deadline; to be filled in and started, or given up by recycle().
  Op& prepare(sdk::OpKind kind, const sdk::CollectiveCall& call);
  void reduces(Op& op, DLDataType dtype, int32_t reduce) { op.reduction.function = reduce_function(dtype, reduce); }
  void keep(Op& op, char* to, const char* from, size_t bytes) { op.own = {to, from, bytes}; }
  void start(Op& op);
  void wait(Op& op);
  void recycle(Op& op) noexcept;

  // Poisons the group, tells all others, and throws `code` with `text`. The others report `code` too.
  [[noreturn]] void refuse(tsr_code code, const std::string& text) { fail(code, text); }
  // [any-thread] Poisons the group. Here it is reported as TSR_CANCELLED, elsewhere as TSR_ABORTED.
  void abort(const std::string& reason) noexcept;
  void throw_if_failed() const;

  uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }

 private:
  // Another rank: its connections and how far the traffic with it has come.
  struct Peer {
    int32_t rank = 0;
    int32_t name = 0;
    Channel link;
    uint64_t send_sequence = 0, recv_sequence = 0;  // the next operations to look at
    Op* sending = nullptr;                          // null: nothing to send or receive now
    Op* receiving = nullptr;
    size_t sent = 0, got = 0;  // bytes of the current operation, header included
    sdk::OpHeader out, in;
    bool left = false;  // it said goodbye
    ControlFrame control;
    size_t control_got = 0;
    std::string waits_for;  // what it would say if it were late now; empty: it has not been waiting for long
    uint32_t waits_in = 0;  // the last bits of an operation's sequence number
  };

  // For machines to answer a probe: long enough for any network, and a queue in it.
  static constexpr std::chrono::milliseconds kProbeTime{1000};

  // Operations that are not done, by sequence number.
  static constexpr uint64_t kInFlight = 64;
  Op*& slot(uint64_t sequence) { return in_flight_[sequence % kInFlight]; }

  static bool copy_own(Op& op, size_t most);
  void exchange(Op& op);
  void next_send(Peer& peer);
  void next_receive(Peer& peer);
  bool progress();
  bool push(Peer& peer);
  bool pull(Peer& peer);
  bool can_push(const Peer& peer) const;
  bool is_lending(const Peer& peer) const;
  bool settle(Peer& peer);
  size_t receivable(Peer& peer, char** where);
  void received(Peer& peer, size_t bytes);
  void end_send(Peer& peer);
  void end_receive_if_complete(Peer& peer);
  void end_if_done(Op& op);
  void check_header(Peer& peer);
  void reduce_if_ready(Op& op);
  void reduce_chunk(Op& op);
  char* scratch(int32_t rank);
  static size_t chunk_for(size_t peers);
  bool fall_asleep();
  void sleep(Op& op, Clock::time_point deadline);

  // Failures (failures.cc).
  [[noreturn]] void fail(tsr_code code, const std::string& text);
  void read_control(Peer& peer, const Op& op, int error);
  [[noreturn]] void lost(Peer& peer, const Op& op, int error);
  [[noreturn]] void late(const Op& op);
  std::string who_is_late(const Op& op) const;
  static bool is_held_up(const Peer& peer, const Op& op);
  void probe(const Op& op, const std::string& waits_for) noexcept;
  std::vector<int32_t> unreachable() const;
  bool poison(tsr_code code, const std::string& text) noexcept;
  void tell_all(ControlKind kind, tsr_code code, const std::string& text, uint64_t sequence = 0) noexcept;

  int32_t rank_;
  int32_t name_;
  double timeout_s_;
  std::chrono::nanoseconds spin_;
  std::vector<Peer> peers_;  // beginning behind this rank, so that not all ranks send to rank 0 first
  uint64_t next_sequence_ = 0;
  Op* in_flight_[kInFlight] = {};
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<Op*> free_ops_;
  size_t chunk_;  // bytes of a reduction that are reduced at once
  std::unique_ptr<char[]> scratch_;
  std::vector<pollfd> polled_;
  std::atomic<uint64_t> bytes_sent_{0};

  Fd wake_;  // readable once the group is poisoned
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // of what follows, and of writing to control connections
  tsr_code failure_code_ = TSR_OK;
  std::string failure_;
};

}  // namespace tessera::tcp
