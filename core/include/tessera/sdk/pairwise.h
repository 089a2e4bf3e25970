// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/pairwise.h - collective operations as exchanges between pairs of ranks, for transports that move bytes.
//
// An engine executes an operation's transfers and reductions. PairwiseGroup does the rest of an sdk::Group: it checks
// arguments with common messages, turns every operation into transfers, and ends the operation for all ranks if a call
// is refused. In small groups all algorithms are direct: each rank exchanges with each other one, in one step or, for a
// large all_reduce, in two. Beyond an engine's direct_world(), if it has one, barrier, all_gather and broadcast take
// log2(n) rounds instead, with one message each (detail/pair_rounds.h). Deadlines and messages about failures belong to
// the engine. A transport with byte streams between pairs takes its engine from sdk/pair_engine.h. One with its own
// engine uses the messages of sdk/pair_failures.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/sdk/collective.h"
#include "tessera/sdk/collective_checks.h"
#include "tessera/sdk/detail/pair_rounds.h"

namespace tessera::sdk {
inline namespace v1 {

using PairClock = std::chrono::steady_clock;

inline PairClock::time_point seconds_from_now(double seconds) {
  return PairClock::now() + std::chrono::duration_cast<PairClock::duration>(std::chrono::duration<double>(seconds));
}

enum class OpKind : uint8_t { kAllToAll, kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier };

// Describes an operation, so that ranks can compare it. Each rank sends it to each other rank before the data. Integers
// are sent as they are in memory.
struct OpHeader {
  static constexpr uint32_t kMagic = 0x44525354;  // "TSRD"
  uint32_t magic = kMagic;
  OpKind kind = OpKind::kBarrier;
  uint8_t reduce = 0;  // TSR_REDUCE_*
  uint8_t dtype_code = 0;
  uint8_t dtype_bits = 0;
  uint64_t sequence = 0;  // of the operation in its group
  uint64_t bytes = 0;     // from the sender to the receiver
  uint64_t total = 0;     // of the whole operation if all ranks must agree on it; otherwise 0
  char label[32] = {};    // NUL-terminated; for messages only
};
static_assert(sizeof(OpHeader) == 64);

// Copies `text` into a fixed array, truncated and NUL-terminated.
inline void set_text(char* to, size_t capacity, std::string_view text) {
  const size_t size = std::min(text.size(), capacity - 1);
  if (size > 0) std::memcpy(to, text.data(), size);
  std::memset(to + size, 0, capacity - size);
}

// Returns the text that a peer wrote into a fixed array, with unprintable characters replaced.
inline std::string safe_text(const char* from, size_t capacity) {
  std::string text(from, strnlen(from, capacity));
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

// Returns `all_reduce "loss"`, safe to print whatever the peer sent.
inline std::string name_of(const OpHeader& header) {
  constexpr const char* kNames[] = {"all_to_all_v", "all_reduce", "reduce_scatter_v",
                                    "all_gather_v", "broadcast",  "barrier"};
  const auto index = static_cast<size_t>(header.kind);
  std::string text = index < std::size(kNames) ? kNames[index] : "an unknown operation";
  const std::string label = safe_text(header.label, sizeof(header.label));
  if (!label.empty()) text += " \"" + label + "\"";
  return text;
}

// Returns `all_reduce "loss" (sum of float32, 4096 bytes)`, also safe to print.
inline std::string describe(const OpHeader& header) {
  if (header.kind == OpKind::kBarrier) return name_of(header);
  const char* type = header.dtype_code == kDLInt     ? "int"
                     : header.dtype_code == kDLUInt  ? "uint"
                     : header.dtype_code == kDLFloat ? "float"
                                                     : "type";
  constexpr const char* kReductions[] = {"sum", "max", "min"};
  std::string text = name_of(header) + " (";
  if (header.kind == OpKind::kAllReduce || header.kind == OpKind::kReduceScatter) {
    text += std::string(header.reduce < std::size(kReductions) ? kReductions[header.reduce] : "?") + " of ";
  }
  text += type + std::to_string(header.dtype_bits) + ", ";
  return text + (header.total != 0 ? std::to_string(header.total) + " bytes)"
                                   : std::to_string(header.bytes) + " bytes from this rank to that)");
}

// The exchange of one rank with another in an operation. It receives the other's contribution to the reduction, if
// there is one, then `recv`. It sends `send`, then the reduced piece, if the operation hands it out.
struct PeerTransfer {
  bool sends = false;
  bool receives = false;
  const char* send = nullptr;
  size_t send_bytes = 0;
  char* recv = nullptr;
  size_t recv_bytes = 0;
  uint8_t round = 0;        // of `recv`
  uint8_t sends_after = 0;  // nothing is sent before the data of this number of rounds have arrived
};

// The contributions of all ranks to this rank's part of a reduction. They are combined in rank order, so all ranks and
// all runs get the same bits.
struct ReducedPiece {
  const char* own = nullptr;  // this rank's contribution
  char* target = nullptr;     // place of the result; may be `own`
  size_t bytes = 0;
  bool hands_out = false;    // the result is sent to all other ranks
  bool after_sends = false;  // wait, because `target` is still being sent
};

struct PairwiseOp : Work {
  OpHeader header;          // this rank's view; the engine sets `sequence` and `bytes`, which differ by transfer
  bool one_reader = false;  // the data of a transfer go only to its rank
  double timeout_s = 0;
  PairClock::time_point deadline;
  // For operations in rounds:
  bool in_rounds = false;
  uint32_t arrived = 0;  // a bit for each round whose data have arrived
  char* ring = nullptr;  // data of a transfer that reach its end go on at its beginning
  size_t ring_bytes = 0;

  bool may_send(const PeerTransfer& transfer) const { return has_rounds(transfer.sends_after); }
  // True if all rounds before the one of its data have arrived.
  bool is_due(const PeerTransfer& transfer) const { return has_rounds(transfer.round); }
  bool has_rounds(uint8_t count) const { return (~arrived & ((uint32_t{1} << count) - 1)) == 0; }
  // The part of a transfer's data before the ring's end.
  size_t before_end(const char* data, size_t bytes) const {
    return ring == nullptr ? bytes : std::min(bytes, static_cast<size_t>(ring + ring_bytes - data));
  }

  // Called in prepare().
  void begin(OpKind kind, const CollectiveCall& call, double default_timeout_s) {
    header = OpHeader{};
    header.kind = kind;
    if (call.label != nullptr) set_text(header.label, sizeof(header.label), call.label);
    one_reader = in_rounds = false;
    arrived = 0;
    ring = nullptr;
    timeout_s = call.timeout_s > 0 ? call.timeout_s : default_timeout_s;
    deadline = seconds_from_now(timeout_s);
  }
};

// An engine has operations Op : PairwiseOp with `transfers`, by rank, and `reduction`: PeerTransfers and a
// ReducedPiece, or types derived from them. It has
//   static constexpr const char* kName;      of the transport, in messages
//   static constexpr size_t kExchangedWhole;  an all_reduce of up to this many bytes is one step
//   int32_t rank() const, world_size() const, name() const;    `name`: this rank's name in messages
//   Op& prepare(OpKind, const CollectiveCall&);       cleared, after begin()
//   void reduces(Op&, DLDataType, int32_t op);        Failure(TSR_UNIMPLEMENTED): it cannot
//   void keep(Op&, char* to, const char* from, size_t bytes);  data that a rank gets from itself; may be NULL, 0 bytes
//   void start(Op&);  void recycle(Op&) noexcept;     after prepare(): one of the two
//   [[noreturn]] void refuse(tsr_code, const Blame&);          ends the group on all ranks, and throws
//   void throw_if_failed() const;  void abort(const std::string&) noexcept;  uint64_t bytes_sent() const;
//   all three from any thread
// An engine that heeds PeerTransfer::sends_after and PairwiseOp::ring may have
//   int32_t direct_world() const;  the largest group whose ranks all exchange directly; the same on all ranks
template <class Engine>
class PairwiseGroup : public Group {
 public:
  template <class Options>
  explicit PairwiseGroup(Options&& options) : engine_(std::forward<Options>(options)) {}

  int32_t rank() const final { return engine_.rank(); }
  int32_t world_size() const final { return engine_.world_size(); }
  void abort(const char* reason) noexcept override { engine_.abort(reason); }
  uint64_t bytes_sent() const override { return engine_.bytes_sent(); }
  void status() const override { engine_.throw_if_failed(); }

  Work* all_to_all_v(const DLTensor& send, Counts send_counts, const DLTensor& recv, Counts recv_counts,
                     const CollectiveCall& call) override {
    return run(OpKind::kAllToAll, &send, call, [&](Op& op) {
      checks().all_to_all_v(send, send_counts, recv, recv_counts);
      const char* from = first_byte(send);
      char* to = first_byte(recv);
      for (int32_t r = 0; r < world_size(); ++r) {
        const size_t sent = bytes_of(send_counts[r], send), received = bytes_of(recv_counts[r], recv);
        if (r == rank()) {
          engine_.keep(op, to, from, sent);
        } else {
          transfer(op, r) = {sent > 0, received > 0, from, sent, to, received};  // both sides know the sizes
        }
        from += sent;
        to += received;
      }
      op.one_reader = true;
    });
  }

  // If data are not exchanged whole, rank r reduces piece r and sends the result to all.
  Work* all_reduce(const DLTensor& inout, int32_t reduce, const CollectiveCall& call) override {
    return run(OpKind::kAllReduce, &inout, call, [&](Op& op) {
      checks().all_reduce(inout);
      reduces(op, inout, reduce);
      const bool whole = op.header.total <= Engine::kExchangedWhole &&
                         op.header.total * static_cast<size_t>(world_size()) <= kWholeTogether;
      const int64_t elements = numel(inout), world = world_size();
      for (int32_t r = 0; r < world_size(); ++r) {
        const size_t begin = whole ? 0 : bytes_of(elements * r / world, inout);
        const size_t end = bytes_of(whole ? elements : elements * (r + 1) / world, inout);
        char* piece = begin == end ? nullptr : first_byte(inout) + begin;
        if (r == rank()) {
          op.reduction.own = op.reduction.target = piece;
          op.reduction.bytes = end - begin;
        } else {
          transfer(op, r) = {true, true, piece, end - begin, piece, whole ? 0 : end - begin};
        }
      }
      op.reduction.hands_out = op.one_reader = !whole;
      op.reduction.after_sends = whole;
    });
  }

  Work* reduce_scatter_v(const DLTensor& send, Counts counts, const DLTensor& recv, int32_t reduce,
                         const CollectiveCall& call) override {
    return run(OpKind::kReduceScatter, &send, call, [&](Op& op) {
      checks().reduce_scatter_v(send, counts, recv);
      reduces(op, send, reduce);
      const char* piece = first_byte(send);
      for (int32_t r = 0; r < world_size(); ++r) {
        const size_t bytes = bytes_of(counts[r], send);
        if (r == rank()) {
          op.reduction.own = piece;
        } else {
          transfer(op, r) = {true, true, piece, bytes, nullptr, 0};
        }
        piece += bytes;
      }
      op.reduction.target = first_byte(recv);
      op.reduction.bytes = bytes_of(numel(recv), recv);
      op.one_reader = true;
      if (world_size() == 1) engine_.keep(op, op.reduction.target, op.reduction.own, op.reduction.bytes);
    });
  }

  Work* all_gather_v(const DLTensor& send, const DLTensor& recv, Counts counts, const CollectiveCall& call) override {
    return run(OpKind::kAllGather, &send, call, [&](Op& op) {
      checks().all_gather_v(send, recv, counts);
      op.header.total = bytes_of(numel(recv), recv);
      if (in_rounds()) return gather_in_rounds(op, send, recv, counts);
      const size_t sent = bytes_of(numel(send), send);
      char* to = first_byte(recv);
      for (int32_t r = 0; r < world_size(); ++r) {
        const size_t bytes = bytes_of(counts[r], recv);
        if (r == rank()) {
          engine_.keep(op, to, first_byte(send), bytes);
        } else {
          transfer(op, r) = {true, true, first_byte(send), sent, to, bytes};
        }
        to += bytes;
      }
    });
  }

  Work* broadcast(const DLTensor& inout, int32_t root, const CollectiveCall& call) override {
    return run(OpKind::kBroadcast, &inout, call, [&](Op& op) {
      checks().broadcast(inout, root);
      const size_t bytes = op.header.total = bytes_of(numel(inout), inout);
      if (in_rounds()) return broadcast_in_rounds(op, first_byte(inout), bytes, root);
      for (int32_t r = 0; r < world_size(); ++r) {
        if (rank() == root && r != root) transfer(op, r) = {true, false, first_byte(inout), bytes, nullptr, 0};
        if (rank() != root && r == root) transfer(op, r) = {false, true, nullptr, 0, first_byte(inout), bytes};
      }
    });
  }

  Work* barrier(const CollectiveCall& call) override {
    return run(OpKind::kBarrier, nullptr, call, [&](Op& op) {
      if (in_rounds()) return all_rounds(op);
      for (int32_t r = 0; r < world_size(); ++r) transfer(op, r).sends = transfer(op, r).receives = r != rank();
    });
  }

 protected:
  Engine engine_;

 private:
  // Bytes that a rank sends at most for an all_reduce in one step: 16 KiB to each of 64 ranks.
  static constexpr size_t kWholeTogether = size_t{1} << 20;

  using Op = std::remove_reference_t<decltype(std::declval<Engine&>().prepare({}, std::declval<CollectiveCall>()))>;

  // Fills in an operation and starts it. A refusal in `fill` ends the group on all ranks, because the others would
  // wait.
  template <class Fill>
  Work* run(OpKind kind, const DLTensor* typed, const CollectiveCall& call, Fill&& fill) {
    engine_.throw_if_failed();
    Op& op = engine_.prepare(kind, call);
    if (typed != nullptr) {
      op.header.dtype_code = typed->dtype.code;
      op.header.dtype_bits = typed->dtype.bits;
    }
    try {
      fill(op);
    } catch (const Failure& refusal) {
      const int32_t name = engine_.name();
      const std::string text = refusal.what() + (" (rank " + std::to_string(name) + ", " + name_of(op.header) + ")");
      engine_.recycle(op);
      engine_.refuse(refusal.code(), {text, name});
    }
    engine_.start(op);
    return &op;
  }

  void reduces(Op& op, const DLTensor& tensor, int32_t reduce) {
    engine_.reduces(op, tensor.dtype, reduce);
    op.header.reduce = static_cast<uint8_t>(reduce);
    op.header.total = bytes_of(numel(tensor), tensor);
  }

  bool in_rounds() const {
    if constexpr (requires { engine_.direct_world(); }) return world_size() > engine_.direct_world();
    return false;
  }

  // Each rank sends once in each round, after all earlier rounds.
  void all_rounds(Op& op) const {
    const PairRounds rounds{rank(), world_size()};
    op.in_rounds = true;
    for (int32_t k = 0; k < rounds.count(); ++k) {
      PeerTransfer& out = transfer(op, rounds.to(k));
      out.sends = true;
      out.sends_after = static_cast<uint8_t>(k);
      PeerTransfer& in = transfer(op, rounds.from(k));
      in.receives = true;
      in.round = static_cast<uint8_t>(k);
    }
  }

  void gather_in_rounds(Op& op, const DLTensor& send, const DLTensor& recv, Counts counts) const {
    const PairRounds rounds{rank(), world_size()};
    const auto bytes_in = [&](int32_t first, int32_t blocks) {
      size_t bytes = 0;
      for (int32_t i = 0; i < blocks; ++i) bytes += bytes_of(counts[(first + i) % world_size()], recv);
      return bytes;
    };
    char* const begin = op.ring = first_byte(recv);
    op.ring_bytes = op.header.total;
    char* const own = begin + bytes_in(0, rank());
    const size_t own_bytes = bytes_in(rank(), 1);
    if (own_bytes > 0) std::memmove(own, first_byte(send), own_bytes);  // later rounds send it from here
    all_rounds(op);
    for (int32_t k = 0; k < rounds.count(); ++k) {
      PeerTransfer& out = transfer(op, rounds.to(k));
      out.send = own;
      out.send_bytes = bytes_in(rank(), rounds.blocks(k));
      PeerTransfer& in = transfer(op, rounds.from(k));
      in.recv = begin + bytes_in(0, rounds.from(k));
      in.recv_bytes = bytes_in(rounds.from(k), rounds.blocks(k));
    }
  }

  void broadcast_in_rounds(Op& op, char* data, size_t bytes, int32_t root) const {
    const PairTree tree{rank(), world_size(), root};
    op.in_rounds = true;
    if (rank() != root) transfer(op, tree.parent()) = {false, true, nullptr, 0, data, bytes};
    tree.for_each_child([&](int32_t child) {
      transfer(op, child) = {true, false, data, bytes, nullptr, 0};
      transfer(op, child).sends_after = rank() == root ? 0 : 1;
    });
  }

  CallChecks checks() const { return {Engine::kName, *this}; }
  static PeerTransfer& transfer(Op& op, int32_t rank) { return op.transfers[static_cast<size_t>(rank)]; }
  static char* first_byte(const DLTensor& tensor) { return data_as<char>(tensor); }
  static size_t bytes_of(int64_t elements, const DLTensor& tensor) {
    return static_cast<size_t>(elements) * static_cast<size_t>(element_bytes(tensor));
  }
};

// Waits for an operation and recycles it, even if it fails.
inline void finish(Work* work) {
  struct Recycle {
    Work* work;
    ~Recycle() { work->recycle(); }
  } const recycle{work};
  work->wait();
}

// Returns the values of all ranks, in rank order; split() needs it.
template <class T>
std::vector<T> all_gather_value(Group& group, const T& mine, const CollectiveCall& call) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::vector<int64_t> counts(static_cast<size_t>(group.world_size()), sizeof(T));
  std::vector<T> all(counts.size());
  int64_t own_bytes = sizeof(T), all_bytes = own_bytes * group.world_size();
  const DLTensor own{const_cast<T*>(&mine), {kDLCPU, 0}, 1, dtype_of<uint8_t>(), &own_bytes, nullptr, 0};
  const DLTensor everybodys{all.data(), {kDLCPU, 0}, 1, dtype_of<uint8_t>(), &all_bytes, nullptr, 0};
  finish(group.all_gather_v(own, everybodys, counts, call));
  return all;
}

// Takes the choices of all ranks, with members `color` and `key`. Returns the ranks of the new group, in its order.
template <class Choice>
std::vector<int32_t> ranks_of_color(const std::vector<Choice>& choices, int32_t color) {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < choices.size(); ++rank) {
    if (choices[rank].color == color) ranks.push_back(static_cast<int32_t>(rank));
  }
  const auto key = [&](int32_t rank) { return choices[static_cast<size_t>(rank)].key; };
  std::stable_sort(ranks.begin(), ranks.end(), [&](int32_t a, int32_t b) { return key(a) < key(b); });
  return ranks;
}

}  // namespace v1
}  // namespace tessera::sdk
