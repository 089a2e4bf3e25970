// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/detail/pair_engine_moves.h - the data path of sdk/pair_engine.h.
#pragma once

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tessera/sdk/pair_engine.h"

namespace tessera::sdk {
inline namespace v1 {

template <IsPairLink Link>
PairEngine<Link>::PairEngine(PairEngineOptions<Link> options)
    : rank_(options.rank),
      name_(options.names.at(static_cast<size_t>(options.rank))),
      timeout_s_(options.timeout_s),
      spin_(static_cast<int64_t>(options.spin_us * 1000)),
      direct_world_(options.direct_world),
      chunk_(chunk_for(options.links.size() - 1)),
      waited_(std::move(options.waited)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_) fail(TSR_RESOURCE_EXHAUSTED, kName, ": no event descriptor: ", std::strerror(errno));
  const size_t world = options.links.size();
  const PairRounds rounds{rank_, static_cast<int32_t>(world)};
  peers_ = std::vector<Peer>(world - 1);
  for (size_t k = 1; k < world; ++k) {
    const size_t rank = (static_cast<size_t>(rank_) + k) % world;
    peers_[k - 1].rank = static_cast<int32_t>(rank);
    peers_[k - 1].name = options.names[rank];
    peers_[k - 1].is_near = rounds.world <= direct_world_ || rounds.joins(peers_[k - 1].rank);
    peers_[k - 1].link = std::move(options.links[rank]);
  }
  polled_.resize(2 * peers_.size() + 1);
}

template <IsPairLink Link>
PairEngine<Link>::~PairEngine() {
  for (const Peer& peer : peers_) peer.link.renounce();
  if (failure_.is_set()) {
    tell_failure(/*near=*/false);
  } else {
    const Notice goodbye(Notice::kGoodbye, rank_, TSR_OK, {}, next_sequence_);
    const bool near_only = ends_in_barrier();
    const std::lock_guard lock(telling_);
    for (const Peer& peer : peers_) {
      if (peer.is_near || !near_only) peer.link.notices().tell(goodbye);
    }
  }
}

// True if all ranks have come to the last operation, which only waits for them.
template <IsPairLink Link>
bool PairEngine<Link>::ends_in_barrier() const {
  return newest_is_barrier_ && std::all_of(std::begin(in_flight_), std::end(in_flight_), [](Op* op) { return !op; });
}

// --- operations ------------------------------------------------------------------------------------------------------

template <IsPairLink Link>
void PairEngine<Link>::reduces(Op& op, DLDataType dtype, int32_t reduce) {
  op.reduction.function = reduce_function(kName, dtype, reduce);
}

template <IsPairLink Link>
typename PairEngine<Link>::Op& PairEngine<Link>::prepare(OpKind kind, const CollectiveCall& call) {
  if (free_ops_.empty()) {
    free_ops_.reserve(ops_.size() + 1);  // recycle() must not fail
    ops_.push_back(std::make_unique<Op>());
    ops_.back()->engine = this;
    free_ops_.push_back(ops_.back().get());
  }
  Op& op = *free_ops_.back();
  free_ops_.pop_back();
  op.begin(kind, call, timeout_s_);
  op.transfers.assign(peers_.size() + 1, PeerTransfer{});
  op.reduction = Reduction{};
  op.own = OwnPiece{};
  op.reduced = 0;
  op.slots_full = op.sends_left = op.receives_left = 0;
  return op;
}

template <IsPairLink Link>
void PairEngine<Link>::start(Op& op) {
  throw_if_failed();
  if (Op* oldest = slot(next_sequence_)) wait(*oldest);
  op.header.sequence = next_sequence_;
  for (const Peer& peer : peers_) {
    op.sends_left += op.transfers[peer.rank].sends;
    op.receives_left += op.transfers[peer.rank].receives;
  }
  if (op.reduction.bytes == 0) op.reduction.function = nullptr;
  op.own.is_much = op.own.bytes >= kMuch;
  slot(next_sequence_++) = &op;
  newest_is_barrier_ = op.header.kind == OpKind::kBarrier;
  end_if_done(op);
  for (Peer& peer : peers_) {
    if (peer.sending == nullptr) next_send(peer);
    if (peer.receiving == nullptr) next_receive(peer);
    if (peer.sending != nullptr && can_push(peer)) push(peer);
  }
}

template <IsPairLink Link>
void PairEngine<Link>::wait(Op& op) {
  if (!op.done()) exchange(op);
  copy_own(op, op.own.bytes);
}

template <IsPairLink Link>
bool PairEngine<Link>::copy_own(Op& op, size_t most) {
  const size_t bytes = std::min(op.own.bytes, most);
  if (bytes == 0) return false;
  if (op.own.to != op.own.from) {
    if (op.own.is_much) {
      Link::copy_much(op.own.to, op.own.from, bytes);
    } else {
      std::memcpy(op.own.to, op.own.from, bytes);
    }
  }
  op.own = {op.own.to + bytes, op.own.from + bytes, op.own.bytes - bytes, op.own.is_much};
  return true;
}

// Moves data until the operation is done.
template <IsPairLink Link>
void PairEngine<Link>::exchange(Op& op) {
  const Clock::time_point start = Clock::now();
  const Clock::time_point deadline = std::max(op.deadline, start + kWaitGrace);
  // Probe in time, so that at the deadline it is known who does not even answer.
  Clock::time_point probe_at = deadline - std::min<Clock::duration>(kProbeTime, (deadline - start) / 2);
  constexpr Clock::time_point kBusy = Clock::time_point::max();
  Clock::time_point now = start, idle_since = kBusy, looked = start;
  bool probed = false;
  while (true) {
    throw_if_failed();
    const bool moved = progress();
    if (moved && idle_since != kBusy) has_waited(now - idle_since);
    if (op.done()) break;
    if (now >= deadline) {
      if (idle_since != kBusy) has_waited(now - idle_since);
      late(op);
    }
    if (now >= probe_at) {
      probe(op);
      probed = true;
      probe_at = Clock::time_point::max();
    } else if (probed && now + kLeastProbeTime < deadline && std::exchange(news_, false)) {
      probe(op);  // later, its machine could not answer in time
    }
    if (moved || copy_own(op, op.own.is_much ? kMuchSlice : kCopySlice)) {
      idle_since = kBusy;
      now = Clock::now();
      continue;
    }
    if (idle_since == kBusy) {
      idle_since = now;
      waits_now(op);
    }
    const bool tries = sleeps_at_once_ == 0 && now - idle_since < spin_;
    const Clock::time_point before = now;
    if (tries && now - looked < kLook) {
      sched_yield();  // if ranks share a processor, the one waited for may need it
      now = Clock::now();
      if (now - before >= kCrowd) sleeps_at_once_ = kSleepsAtOnce;
    } else {
      if (sleeps_at_once_ > 0) --sleeps_at_once_;
      sleep(op, tries ? now : std::min(deadline, probe_at));
      looked = before;
      now = Clock::now();
    }
  }
  if (probed) waits_no_more(op);
}

// --- moving bytes ----------------------------------------------------------------------------------------------------

// Makes the next operation with something for this peer the current one.
template <IsPairLink Link>
void PairEngine<Link>::next_send(Peer& peer) {
  peer.sent = 0;
  for (; peer.send_sequence < next_sequence_; ++peer.send_sequence) {
    Op* op = slot(peer.send_sequence);
    // A later operation may have taken the slot. The one looked for is then done.
    if (op == nullptr || op->header.sequence != peer.send_sequence) continue;
    const PeerTransfer& transfer = op->transfers[peer.rank];
    if (!transfer.sends) continue;
    peer.sending = op;
    peer.out = op->header;
    peer.out.bytes = transfer.send_bytes + (op->reduction.hands_out ? op->reduction.bytes : 0);
    return;
  }
  peer.sending = nullptr;
}

template <IsPairLink Link>
void PairEngine<Link>::next_receive(Peer& peer) {
  peer.got = 0;
  for (; peer.recv_sequence < next_sequence_; ++peer.recv_sequence) {
    Op* op = slot(peer.recv_sequence);
    if (op == nullptr || op->header.sequence != peer.recv_sequence || !op->transfers[peer.rank].receives) continue;
    peer.receiving = op;
    return;
  }
  peer.receiving = nullptr;
}

template <IsPairLink Link>
bool PairEngine<Link>::progress() {
  bool moved = false;
  for (Peer& peer : peers_) {
    if (peer.sending != nullptr) moved |= is_lending(peer) ? settle(peer) : can_push(peer) && push(peer);
    if (peer.receiving != nullptr) moved |= pull(peer);
  }
  return moved;
}

// True if there is something to send now. A reduced piece may not be ready, and a round waits for those before it.
template <IsPairLink Link>
bool PairEngine<Link>::can_push(const Peer& peer) const {
  const Op& op = *peer.sending;
  return op.may_send(op.transfers[peer.rank]) &&
         peer.sent < sizeof(OpHeader) + op.transfers[peer.rank].send_bytes + (op.reduction.hands_out ? op.reduced : 0);
}

// True if everything is sent, but the other side still has to fetch some of it.
template <IsPairLink Link>
bool PairEngine<Link>::is_lending(const Peer& peer) const {
  return peer.sent == sizeof(OpHeader) + peer.out.bytes;
}

template <IsPairLink Link>
bool PairEngine<Link>::settle(Peer& peer) {
  if (peer.link.settled()) {
    end_send(peer);
    return true;
  }
  if (peer.link.ended()) lost(peer, *peer.sending, 0);
  return false;
}

template <IsPairLink Link>
bool PairEngine<Link>::push(Peer& peer) {
  Op& op = *peer.sending;
  const PeerTransfer& transfer = op.transfers[peer.rank];
  iovec pieces[3];
  size_t count = 0, at = peer.sent;
  // Adds the part of `data` after the bytes already sent.
  const auto add = [&](const void* data, size_t bytes) {
    if (at >= bytes) {
      at -= bytes;
      return;
    }
    pieces[count++] = {const_cast<char*>(static_cast<const char*>(data)) + at, bytes - at};
    at = 0;
  };
  add(&peer.out, sizeof(OpHeader));
  const size_t before = count;
  const size_t before_end = op.before_end(transfer.send, transfer.send_bytes);
  add(transfer.send, before_end);
  add(op.ring, transfer.send_bytes - before_end);
  const iovec* for_it_alone = op.one_reader && count > before ? &pieces[before] : nullptr;
  if (op.reduction.hands_out) add(op.reduction.target, op.reduced);
  const ssize_t n = peer.link.send(pieces, count, for_it_alone);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    lost(peer, op, errno);
  }
  peer.sent += static_cast<size_t>(n);
  bytes_sent_.store(bytes_sent() + static_cast<uint64_t>(n), std::memory_order_relaxed);  // only this thread writes it
  if (is_lending(peer)) settle(peer);
  return n > 0;
}

// Number of next payload bytes wanted now; possibly 0 while a reduction waits.
template <IsPairLink Link>
size_t PairEngine<Link>::wanted_from(const Peer& peer) const {
  const Op& op = *peer.receiving;
  const size_t at = payload_of(peer), contribution = contribution_of(op);
  if (at < contribution) return std::min(op.reduced + chunk_, contribution) - at;
  const PeerTransfer& transfer = op.transfers[peer.rank];
  const size_t before_end = op.before_end(transfer.recv, transfer.recv_bytes);
  return (at - contribution < before_end ? before_end : transfer.recv_bytes) - (at - contribution);
}

// Destination of these bytes.
template <IsPairLink Link>
char* PairEngine<Link>::place_for(const Peer& peer) {
  const Op& op = *peer.receiving;
  const size_t at = payload_of(peer), contribution = contribution_of(op);
  if (at < contribution) return scratch(peer.rank) + (at - op.reduced);
  const PeerTransfer& transfer = op.transfers[peer.rank];
  const size_t before_end = op.before_end(transfer.recv, transfer.recv_bytes);
  return at - contribution < before_end ? transfer.recv + (at - contribution)
                                        : op.ring + (at - contribution - before_end);
}

// Receives header and payload in one call, because their places are known beforehand.
template <IsPairLink Link>
bool PairEngine<Link>::pull(Peer& peer) {
  const Op& op = *peer.receiving;
  iovec pieces[2];
  size_t count = 0;
  const bool header_missing = peer.got < sizeof(OpHeader);
  if (header_missing) {
    pieces[count++] = {reinterpret_cast<char*>(&peer.in) + peer.got, sizeof(OpHeader) - peer.got};
  }
  const size_t wanted = wanted_from(peer);
  if (wanted > 0) pieces[count++] = {place_for(peer), wanted};
  if (count == 0) return false;
  const ssize_t n = peer.link.receive(pieces, count);
  if (n < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    lost(peer, op, errno);
  }
  if (n == 0) lost(peer, op, 0);
  received(peer, static_cast<size_t>(n));
  return true;
}

template <IsPairLink Link>
void PairEngine<Link>::received(Peer& peer, size_t bytes) {
  Op& op = *peer.receiving;
  const size_t before = peer.got;
  peer.got += bytes;
  if (peer.got < sizeof(OpHeader)) return;
  if (before < sizeof(OpHeader)) check_header(peer);
  const size_t contribution = contribution_of(op);
  const size_t slot_end = sizeof(OpHeader) + std::min(op.reduced + chunk_, contribution);
  if (op.reduced < contribution && before < slot_end && peer.got == slot_end) {
    ++op.slots_full;
    reduce_if_ready(op);
  } else {
    end_receive_if_complete(peer);
  }
}

template <IsPairLink Link>
void PairEngine<Link>::check_header(Peer& peer) {
  const Op& op = *peer.receiving;
  const PeerTransfer& transfer = op.transfers[peer.rank];
  OpHeader mine = op.header;
  mine.bytes = transfer.recv_bytes + contribution_of(op);
  const OpHeader& its = peer.in;
  if (its.magic != OpHeader::kMagic) fail_with(TSR_DATA_LOSS, says::damaged(peer.name, mine));
  if (!agree(its, mine)) fail_with(TSR_INVALID_ARGUMENT, says::disagree(peer.name, its, name_, mine));
}

template <IsPairLink Link>
void PairEngine<Link>::end_send(Peer& peer) {
  Op& op = *peer.sending;
  --op.sends_left;
  ++peer.send_sequence;
  if (op.reduction.after_sends) reduce_if_ready(op);
  end_if_done(op);
  next_send(peer);
}

// Data after the last contribution may arrive before the other ranks' contributions.
template <IsPairLink Link>
void PairEngine<Link>::end_receive_if_complete(Peer& peer) {
  Op& op = *peer.receiving;
  const size_t contribution = contribution_of(op);
  if (op.reduced < contribution) return;
  if (peer.got < sizeof(OpHeader) + contribution + op.transfers[peer.rank].recv_bytes) return;
  op.arrived |= uint32_t{1} << op.transfers[peer.rank].round;
  --op.receives_left;
  ++peer.recv_sequence;
  end_if_done(op);
  next_receive(peer);
}

template <IsPairLink Link>
void PairEngine<Link>::end_if_done(Op& op) {
  if (op.done()) slot(op.header.sequence) = nullptr;
}

// --- reductions ------------------------------------------------------------------------------------------------------

// The number of bytes that a socket delivers at once, so that neither side waits for the other's arithmetic. It is so
// small that all others' data stay in the cache.
template <IsPairLink Link>
size_t PairEngine<Link>::chunk_for(size_t peers) {
  constexpr size_t kLeast = size_t{256} << 10, kMost = size_t{1} << 20, kTogether = size_t{4} << 20;
  // The chunks of more than 64 ranks are smaller, so that all together do not fill the memory.
  constexpr size_t kLeastOfMany = size_t{16} << 10, kTogetherOfMany = size_t{16} << 20;
  static_assert(kExchangedWhole <= kLeast);  // PairwiseGroup sends less whole to many ranks
  constexpr size_t kWhole = 64;              // no element spans two chunks, and every chunk is aligned
  const size_t others = std::max<size_t>(peers, 1);
  const size_t least = std::clamp(kTogetherOfMany / others, kLeastOfMany, kLeast);
  return std::clamp(kTogether / others, least, kMost) / kWhole * kWhole;
}

template <IsPairLink Link>
char* PairEngine<Link>::scratch(int32_t rank) {
  if (!scratch_) scratch_.reset(new char[peers_.size() * chunk_]);
  return scratch_.get() + static_cast<size_t>(rank < rank_ ? rank : rank - 1) * chunk_;
}

template <IsPairLink Link>
void PairEngine<Link>::reduce_if_ready(Op& op) {
  if (op.reduction.function == nullptr || op.slots_full < static_cast<int>(peers_.size())) return;
  if (op.reduction.after_sends && op.sends_left > 0) return;
  reduce_chunk(op);
  op.slots_full = 0;
  if (op.reduced < op.reduction.bytes) return;
  for (Peer& peer : peers_) end_receive_if_complete(peer);
}

template <IsPairLink Link>
void PairEngine<Link>::reduce_chunk(Op& op) {
  const Reduction& reduction = op.reduction;
  const size_t bytes = std::min(chunk_, reduction.bytes - op.reduced);
  reduce_in_rank_order(
      reduction.function, world_size(), rank_, reduction.target + op.reduced, bytes,
      [&](int32_t rank) { return rank == rank_ ? const_cast<char*>(reduction.own) + op.reduced : scratch(rank); });
  op.reduced += bytes;
}

// Nothing can be moved until something arrives; notes for whom it waits.
template <IsPairLink Link>
void PairEngine<Link>::waits_now(const Op& op) {
  if (!waited_) return;
  for (Peer& peer : peers_) peer.keeps_waiting = debt_of(peer, op).has_value();
}

template <IsPairLink Link>
void PairEngine<Link>::has_waited(Clock::duration time) {
  if (!waited_) return;
  for (const Peer& peer : peers_) {
    if (peer.keeps_waiting) waited_->add(peer.name, time);
  }
}

// --- sleeping --------------------------------------------------------------------------------------------------------

// Returns false if something can be moved now.
template <IsPairLink Link>
bool PairEngine<Link>::fall_asleep() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    Peer& peer = peers_[i];
    const bool sends = peer.sending != nullptr && can_push(peer);
    const bool receives = peer.receiving != nullptr && (peer.got < sizeof(OpHeader) || wanted_from(peer) > 0);
    const bool lends = peer.sending != nullptr && is_lending(peer);
    const uint32_t wants = (sends ? Wake::kRoom : 0) | (lends ? Wake::kSettled : 0) | (receives ? Wake::kData : 0);
    polled_[2 * i] = {-1, 0, 0};
    if (wants != 0 && !peer.link.sleeps(wants, &polled_[2 * i])) return false;
    polled_[2 * i + 1] = {peer.left || peer.gone ? -1 : peer.link.notices().descriptor(), POLLIN, 0};
  }
  polled_.back() = {wake_.get(), POLLIN, 0};
  return true;
}

template <IsPairLink Link>
void PairEngine<Link>::sleep(Op& op, Clock::time_point deadline) {
  int woken = 0;
  if (fall_asleep()) {
    const auto left = std::max(Clock::duration::zero(), deadline - Clock::now());
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    woken = poll(polled_.data(), polled_.size(), static_cast<int>(std::min<int64_t>(milliseconds, 60000)));
  }
  for (size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].link.wake(woken > 0 && polled_[2 * i].revents != 0);
  }
  for (size_t i = 0; i < peers_.size() && woken > 0; ++i) {
    if (polled_[2 * i + 1].revents != 0) hear(peers_[i], op, 0);
  }
}

}  // namespace v1
}  // namespace tessera::sdk
