// The engine's reaction if a rank leaves, is late, or gives up: it names the rank and tells all others.
#include <unistd.h>

#include "engine.h"
#include "tessera/sdk/error.h"

namespace tessera::mpi {

using sdk::Blame;

namespace {

// How long a failed operation waits for messages that use its caller's memory. The other side, which was ready for
// them, also waits. The messages end soon unless that rank is dead or stuck.
constexpr double kDrain_s = 1;

}  // namespace

void Engine::poison(tsr_code code, const Blame& blame, bool tell) noexcept {
  if (!failure_.set(code, blame, [&] { process_.note_failure(); })) return;
  if (tell) tell_all(Notice::kAbort, code, blame);
}

Blame Engine::named(const Blame& blame) { return {kName + (": " + blame.text), blame.rank}; }

void Engine::fail(tsr_code code, const Blame& blame) {
  poison(code, named(blame));
  failure_.rethrow();
}

void Engine::refuse(tsr_code code, const Blame& blame) {
  const std::lock_guard lock(process_.mutex());
  poison(code, blame);
  failure_.rethrow();
}

void Engine::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(process_.mutex());
  if (failure_.is_set()) return;
  poison(TSR_CANCELLED, named(sdk::says::aborted_here(name(), reason)), false);
  tell_all(Notice::kAbort, TSR_ABORTED, named(sdk::says::aborted(name(), reason)));
}

void Engine::tell_all(Notice::Kind kind, tsr_code code, const Blame& blame) noexcept {
  Notice notice(kind, options_.rank, code, blame);
  notice.sequence = next_sequence_;
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    if (rank != options_.rank)
      process_.post(notice, options_.ranks[rank], process_.tag(options_.id, 0, Channel::kNotice));
  }
}

void Engine::listen() {
  check(MPI_Irecv(notice_.get(), sizeof(Notice), MPI_BYTE, MPI_ANY_SOURCE,
                  process_.tag(options_.id, 0, Channel::kNotice), process_.comm(), &notice_request_),
        "MPI_Irecv");
}

void Engine::stop_listening() noexcept {
  int ended = 0;
  if (!process_.usable()) return process_.keep(notice_);
  if (notice_request_ == MPI_REQUEST_NULL || MPI_Cancel(&notice_request_) != MPI_SUCCESS) return;
  if (MPI_Test(&notice_request_, &ended, MPI_STATUS_IGNORE) != MPI_SUCCESS || ended == 0) process_.keep(notice_);
}

// Reads notices from other ranks. A notice of failure also ends the group on this rank.
void Engine::read_notices() {
  while (true) {
    int arrived = 0;
    check(MPI_Test(&notice_request_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) return;
    const Notice notice = *notice_;
    listen();
    if (!notice.is_sound() || notice.rank < 0 || notice.rank >= world_size()) fail(TSR_DATA_LOSS, {"a damaged notice"});
    if (notice.kind == Notice::kAbort) {
      poison(notice.reported(), notice.said(), false);
      failure_.rethrow();
    }
    left_at_[notice.rank] = notice.sequence;
    for (const Op* op : in_flight_) check_left(*op);
  }
}

// A rank that left before it started the operation will never do its part.
void Engine::check_left(const Op& op) {
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    if (left_at_[rank] > op.header.sequence || !(op.transfers[rank].receives || op.transfers[rank].sends)) continue;
    fail(TSR_ABORTED, sdk::says::closed(name(rank), op.header));
  }
}

void Engine::damaged(const Op& op, int32_t rank) { fail(TSR_DATA_LOSS, sdk::says::damaged(name(rank), op.header)); }

// Reports the late ranks: those from which nothing of the operation has arrived, or if there are none, those with which
// it is unfinished.
void Engine::late(const Op& op) {
  std::vector<int32_t> silent, unfinished;
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    const PeerTransfer& transfer = op.transfers[rank];
    if (transfer.receives && !transfer.heard) {
      silent.push_back(name(rank));
    } else if (transfer.receives || transfer.sends) {
      unfinished.push_back(name(rank));
    }
  }
  fail(TSR_DEADLINE_EXCEEDED, sdk::says::late(silent.empty() ? unfinished : silent, op));
}

void Engine::congested(const Op& op, double timeout_s) {
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < op.requests.size(); ++i) {
    if (op.requests[i] != MPI_REQUEST_NULL) ranks.push_back(name(op.parts[i].rank));
  }
  fail(TSR_DEADLINE_EXCEEDED, {"late: " + name_of(op.header) + " and those after it were not received within " +
                                   sdk::seconds_text(timeout_s) + " by " + sdk::rank_list(ranks),
                               sdk::first_of(ranks)});
}

// Ends an operation of a failed group. Messages in the engine's memory are left alone, forever if necessary. Messages
// that use the caller's memory are waited for and then cancelled. If that fails, this process never calls MPI again, so
// that MPI does not touch memory that is used for something else.
void Engine::abandon(Op& op) noexcept {
  std::erase(in_flight_, &op);
  const Clock::time_point deadline = sdk::seconds_from_now(kDrain_s);
  while (process_.usable()) {
    const bool last_moment = Clock::now() >= deadline;
    bool moving = false, lent = false;
    for (size_t i = 0; i < op.requests.size(); ++i) {
      if (op.requests[i] == MPI_REQUEST_NULL) continue;
      if (op.parts[i].receives() && (last_moment || !op.parts[i].lent)) MPI_Cancel(&op.requests[i]);
      int done = 0;
      if (MPI_Test(&op.requests[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) continue;
      moving = true;
      lent |= op.parts[i].lent;
    }
    if (!moving) op.requests.clear();
    if (!lent) return;
    if (last_moment) process_.give_up("mpi: no longer usable in this process after: " + failure_.text());
    usleep(50);
  }
}

}  // namespace tessera::mpi
