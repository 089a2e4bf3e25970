// What the engine does when a rank leaves, is late, or gives up: say who, and let everybody know.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "engine.h"
#include "tessera/sdk/error.h"

namespace tessera::mpi {
namespace {

// How long a failed operation waits for messages that its caller's memory is lent to. The other side, which was ready
// for them, does the same: it takes a moment, unless that rank is dead or stuck.
constexpr double kDrain_s = 1;

std::string text_of(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", seconds);
  return text;
}

}  // namespace

// The first failure of a group is the one that counts.
void Engine::poison(tsr_code code, const std::string& text, bool tell) noexcept {
  if (failed_) return;
  failed_ = true;
  failure_code_ = code;
  try {
    failure_ = text;
  } catch (const std::bad_alloc&) {
    failure_.clear();
  }
  process_.note_failure();
  if (tell) tell_all(Notice::kAbort, code, text);
}

void Engine::throw_failure() const { throw sdk::Failure(failure_code_, failure_); }

void Engine::throw_if_failed() const {
  const std::lock_guard lock(process_.mutex());
  if (failed_) throw_failure();
}

void Engine::fail(tsr_code code, const std::string& text) {
  poison(code, text);
  throw_failure();
}

void Engine::refuse(tsr_code code, const std::string& text) {
  const std::lock_guard lock(process_.mutex());
  fail(code, text);
}

void Engine::abort(const std::string& reason) noexcept {
  const std::lock_guard lock(process_.mutex());
  if (failed_) return;
  poison(TSR_CANCELLED, "mpi: aborted by this rank: " + reason, false);
  tell_all(Notice::kAbort, TSR_ABORTED, "mpi: rank " + std::to_string(options_.rank) + " aborted: " + reason);
}

void Engine::tell_all(Notice::Kind kind, tsr_code code, const std::string& text) noexcept {
  Notice notice;
  notice.kind = kind;
  notice.rank = options_.rank;
  notice.code = code;
  notice.sequence = next_sequence_;
  set_text(notice.text, sizeof(notice.text), text);
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

// A notice of failure ends the group here as well.
void Engine::read_notices() {
  while (true) {
    int arrived = 0;
    check(MPI_Test(&notice_request_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) return;
    const Notice notice = *notice_;
    listen();
    if (notice.rank < 0 || notice.rank >= world_size()) fail(TSR_DATA_LOSS, "mpi: a damaged notice");
    if (notice.kind == Notice::kAbort) {
      poison(notice.code == TSR_OK ? TSR_ABORTED : notice.code, safe_text(notice.text, sizeof(notice.text)), false);
      throw_failure();
    }
    left_at_[notice.rank] = notice.sequence;
    for (const Op* op : in_flight_) check_left(*op);
  }
}

// A rank that left without having started the operation will never do its part.
void Engine::check_left(const Op& op) {
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    if (left_at_[rank] > op.header.sequence || !(op.transfers[rank].receives || op.transfers[rank].sends)) continue;
    fail(TSR_ABORTED,
         "mpi: rank " + std::to_string(rank) + " closed its group before " + name_of(op.header) + " was done");
  }
}

void Engine::damaged(const Op& op, int32_t rank) {
  fail(TSR_DATA_LOSS, "mpi: damaged data from rank " + std::to_string(rank) + " during " + name_of(op.header));
}

// Those from whom nothing of the operation has come are late; if there are none, those with whom it is unfinished.
void Engine::late(const Op& op) {
  std::string silent, unfinished;
  const auto add = [](std::string* list, int32_t rank) { *list += (list->empty() ? "" : ", ") + std::to_string(rank); };
  for (int32_t rank = 0; rank < world_size(); ++rank) {
    const PeerTransfer& transfer = op.transfers[rank];
    if (transfer.receives && !transfer.heard) {
      add(&silent, rank);
    } else if (transfer.receives || transfer.sends) {
      add(&unfinished, rank);
    }
  }
  const std::string& ranks = silent.empty() ? unfinished : silent;
  const bool several = ranks.find(',') != std::string::npos;
  fail(TSR_DEADLINE_EXCEEDED, std::string("mpi: ") + (several ? "ranks " : "rank ") + ranks +
                                  (several ? " were" : " was") + " late: " + name_of(op.header) +
                                  " did not finish within " + text_of(op.timeout_s) + " s");
}

void Engine::congested(const Op& op, double timeout_s) {
  std::string ranks;
  for (size_t i = 0; i < op.requests.size(); ++i) {
    const std::string rank = std::to_string(op.parts[i].rank);
    if (op.requests[i] != MPI_REQUEST_NULL) ranks += (ranks.empty() ? "" : ", ") + rank;
  }
  fail(TSR_DEADLINE_EXCEEDED, "mpi: late: " + name_of(op.header) + " and those after it were not received within " +
                                  text_of(timeout_s) + " s by rank " + ranks);
}

// Ends an operation of a failed group. What lies in the engine's memory stays as it is, for ever if need be. Messages
// for which memory of the caller is lent are waited for, then taken back; should that not be possible, MPI is not
// called any more in this process, lest it touch memory that is used for something else.
void Engine::abandon(Op& op) noexcept {
  std::erase(in_flight_, &op);
  const Clock::time_point deadline = after(kDrain_s);
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
    if (last_moment) process_.give_up("mpi: not usable any more in this process after: " + failure_);
    usleep(50);
  }
}

}  // namespace tessera::mpi
