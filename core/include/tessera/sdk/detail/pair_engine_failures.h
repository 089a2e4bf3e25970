// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/detail/pair_engine_failures.h - how the engine of sdk/pair_engine.h handles a rank that dies, leaves, is
// late, or gives up: it says which one, and tells all others.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "tessera/sdk/pair_engine.h"

namespace tessera::sdk {
inline namespace v1 {

// Returns true for the first failure.
template <IsPairLink Link>
bool PairEngine<Link>::poison(tsr_code code, const Blame& blame) noexcept {
  const bool first = failure_.set(code, blame, [&] {
    for (const Peer& peer : peers_) peer.link.renounce();
  });
  if (first) eventfd_write(wake_.get(), 1);
  return first;
}

template <IsPairLink Link>
void PairEngine<Link>::fail_as(tsr_code code, const Blame& blame) {
  if (poison(code, blame)) fail_others({Notice::kAbort, rank_, code, blame, next_sequence_});
  failure_.rethrow();
}

template <IsPairLink Link>
void PairEngine<Link>::abort(const std::string& reason) noexcept {
  if (poison(TSR_CANCELLED, named(says::aborted_here(name_, reason)))) {
    fail_others({Notice::kAbort, rank_, TSR_ABORTED, named(says::aborted(name_, reason))});
  }
}

template <IsPairLink Link>
void PairEngine<Link>::tell_all(const Notice& notice) noexcept {
  const std::lock_guard lock(telling_);
  for (const Peer& peer : peers_) peer.link.notices().tell(notice);
}

// Called once. A failure goes to the near ranks, which tell theirs. The others may hear it when this rank closes its
// group, so that nobody takes it for dead.
template <IsPairLink Link>
void PairEngine<Link>::fail_others(const Notice& notice) noexcept {
  {
    const std::lock_guard lock(telling_);
    failed_ = notice;
  }
  tell_failure(/*near=*/true);
}

template <IsPairLink Link>
void PairEngine<Link>::tell_failure(bool near) noexcept {
  const std::lock_guard lock(telling_);
  for (const Peer& peer : peers_) {
    if (peer.is_near == near) peer.link.notices().tell(failed_);
  }
}

// Reads the notices that have arrived. A notice of failure, or an end without a goodbye, also ends this group. `error`:
// the reason, if the data link knows it.
template <IsPairLink Link>
void PairEngine<Link>::hear(Peer& peer, const Op& op, int error) {
  Notice notice;
  while (!peer.left && !peer.gone) {
    const Heard heard = peer.link.notices().hear(&notice);
    if (heard.what == Heard::kNothing) return;
    if (heard.what == Heard::kEnd) {
      if (!may_have_left(peer, op))
        fail_with(TSR_ABORTED, says::died(peer.name, op.header, heard.error != 0 ? heard.error : error));
      peer.gone = true;
      return;
    }
    if (!notice.is_sound()) fail_with(TSR_DATA_LOSS, {"a damaged notice from " + rank_list({peer.name}), peer.name});
    if (notice.kind == Notice::kAbort) fail_as(notice.reported(), notice.said());
    if (notice.kind == Notice::kProbe) {
      peer.waits_for = notice.said();
      peer.waits_in = notice.sequence;
      news_ = true;
    } else {
      peer.left = true;
    }
  }
}

// Ranks of a large group that close after a barrier say goodbye only to near ones. So one that ends while this rank is
// still in a barrier may have left, if it owes nothing. Its near ranks notice a death.
template <IsPairLink Link>
bool PairEngine<Link>::may_have_left(const Peer& peer, const Op& op) const {
  if (!newest_is_barrier_ || peer.is_near || debt_of(peer, op)) return false;
  const Op* const newest = in_flight_[(next_sequence_ - 1) % kInFlight];
  return newest == nullptr || !debt_of(peer, *newest);
}

// The data link has ended. The notices tell the reason, now or in a moment, even if the operation has no time left:
// others that are out of time may also have given up because of a third rank.
template <IsPairLink Link>
void PairEngine<Link>::lost(Peer& peer, const Op& op, int error) {
  if (error == EBADMSG) fail_with(TSR_DATA_LOSS, says::damaged(peer.name, op.header));
  if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH) unreachable(peer, op, error);
  const Clock::time_point now = Clock::now();
  const Clock::time_point until = std::clamp(op.deadline, now + kLeastProbeTime, now + kProbeTime);
  do {
    hear(peer, op, error);
    if (peer.gone) break;
    if (peer.left) {
      // A rank that left may have done so because of another one, whose notice is also here.
      for (Peer& other : peers_) hear(other, op, 0);
      // It may have finished its part of this operation, and an operation of another rank has found it missing.
      const Op* const owed = peer.sending != nullptr ? peer.sending : peer.receiving;
      fail_with(TSR_ABORTED, says::closed(peer.name, owed != nullptr ? owed->header : op.header));
    }
    pollfd polled{peer.link.notices().descriptor(), POLLIN, 0};
    poll(&polled, 1, 10);
  } while (Clock::now() < until);
  fail_with(TSR_ABORTED, says::died(peer.name, op.header, error));
}

template <IsPairLink Link>
void PairEngine<Link>::unreachable(Peer& peer, const Op& op, int error) {
  const Late waits_for = who_is_late(op);
  tell_all({Notice::kProbe, rank_, TSR_OK, waits_for.blame, waits_for.in});
  const Clock::time_point now = Clock::now();
  const Clock::time_point answers_by = std::clamp(op.deadline, now + kLeastProbeTime, now + kProbeTime);
  while (!unacknowledging().empty() && Clock::now() < answers_by) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::vector<int32_t> ranks = unacknowledging();
  if (ranks.empty()) ranks = {peer.name};
  fail_with(TSR_ABORTED, says::out_of_reach(ranks, "the connection was lost during " + name_of(op.header) + " (" +
                                                       std::strerror(error) + ")"));
}

// Asks the ranks that owe this one something if their machines are there, and in a small group all ranks, so that those
// behind a cut link are named together. It tells them, and those that asked, for whom this rank waits. If others then
// say for whom they wait, it is called again: this rank may wait for the same one.
template <IsPairLink Link>
void PairEngine<Link>::probe(const Op& op) {
  const Late late = who_is_late(op);
  const Notice notice(Notice::kProbe, rank_, TSR_OK, late.blame, late.in);
  const bool all = std::ssize(peers_) < direct_world_;
  const std::lock_guard lock(telling_);
  for (Peer& peer : peers_) {
    if (peer.told == late.blame.rank && peer.told_in == late.in) continue;
    if (!all && peer.waits_for.text.empty() && !debt_of(peer, op)) continue;
    peer.told = late.blame.rank;
    peer.told_in = late.in;
    peer.link.notices().tell(notice);
  }
}

template <IsPairLink Link>
void PairEngine<Link>::waits_no_more(const Op& op) noexcept {
  const Notice notice(Notice::kProbe, rank_, TSR_OK, {}, op.header.sequence);
  const std::lock_guard lock(telling_);
  for (Peer& peer : peers_) {
    if (std::exchange(peer.told, kToldNothing) != kToldNothing) peer.link.notices().tell(notice);
  }
}

// Ranks whose machine has not acknowledged the probe. The machine of a stopped or busy process would have.
template <IsPairLink Link>
std::vector<int32_t> PairEngine<Link>::unacknowledging() const {
  std::vector<int32_t> ranks;
  for (const Peer& peer : peers_) {
    if (!peer.left && peer.link.unacknowledged()) ranks.push_back(peer.name);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

template <IsPairLink Link>
void PairEngine<Link>::late(const Op& op) {
  const std::vector<int32_t> away = unacknowledging();
  if (!away.empty()) {
    fail_with(TSR_DEADLINE_EXCEEDED, says::out_of_reach(away, says::not_within(op)));
  }
  for (Peer& peer : peers_) hear(peer, op, 0);
  fail_as(TSR_DEADLINE_EXCEEDED, who_is_late(op).blame);
}

// True if it owes data because it waits for another rank: in an earlier operation, or in this one for data that it
// needs.
template <IsPairLink Link>
bool PairEngine<Link>::is_held_up(const Peer& peer, const Op& op, const Debt& debt) const {
  const uint64_t end = op.header.sequence + (debt.what == Debt::kRest || op.in_rounds ? 1 : 0);
  return !peer.waits_for.text.empty() && peer.waits_for.rank != name_ && peer.waits_in < end;
}

// A peer's debt in this operation or an earlier one: no data have come, some of its own data are missing, or the rest
// is missing, for which it may need others' data. A reduction asks no peer for more before all have sent as much. In
// rounds only the first one that is missing counts, so that ranks never blame each other in a circle.
template <IsPairLink Link>
std::optional<typename PairEngine<Link>::Debt> PairEngine<Link>::debt_of(const Peer& peer, const Op& op) const {
  const auto is_asked_for = [&](const Op* of) { return of != nullptr && of->header.sequence <= op.header.sequence; };
  if (is_asked_for(peer.receiving) && peer.receiving->is_due(peer.receiving->transfers[peer.rank])) {
    const uint64_t in = peer.receiving->header.sequence;
    const size_t contribution = contribution_of(*peer.receiving);
    if (peer.got < sizeof(OpHeader)) return Debt{in, Debt::kAll};
    if (wanted_from(peer) > 0)
      return Debt{in, contribution > 0 && payload_of(peer) >= contribution ? Debt::kRest : Debt::kData};
  }
  if (is_asked_for(peer.sending) && peer.sending->may_send(peer.sending->transfers[peer.rank]))
    return Debt{peer.sending->header.sequence, Debt::kRest};
  return std::nullopt;
}

// The ranks with the oldest and largest debt, except those that wait for others. If all of them wait, the blame goes to
// whom they wait for.
template <IsPairLink Link>
typename PairEngine<Link>::Late PairEngine<Link>::who_is_late(const Op& op) const {
  Late held_up{named(says::late({}, op)), op.header.sequence};
  uint64_t oldest = op.header.sequence;
  std::map<Debt, std::vector<int32_t>> ranks;
  for (const Peer& peer : peers_) {
    const std::optional<Debt> debt = debt_of(peer, op);
    if (!debt) continue;
    oldest = std::min(oldest, debt->in);
    if (!is_held_up(peer, op, *debt))
      ranks[*debt].push_back(peer.name);
    else if (debt->in <= held_up.in)
      held_up = {peer.waits_for, debt->in};
  }
  if (ranks.empty()) return held_up;
  std::vector<int32_t>& late = ranks.begin()->second;
  std::sort(late.begin(), late.end());
  return {named(says::late(late, op)), oldest};
}

}  // namespace v1
}  // namespace tessera::sdk
