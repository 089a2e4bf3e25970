// What the engine does when a rank dies, leaves, is late, or gives up: say who, and let everybody know.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "engine.h"
#include "rendezvous.h"

namespace tessera::tcp {
namespace {

// For an answer to a probe, also where the operation has no time left.
constexpr std::chrono::milliseconds kLeastProbeTime{100};

std::string rank_text(int32_t rank) { return "rank " + std::to_string(rank); }

bool is_no_way_there(int error) { return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH; }

std::string within(const Op& op) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%g s", op.timeout_s);
  return name_of(op.header) + " did not finish within " + seconds;
}

bool try_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

// The first failure of a group is the one that counts. True for it.
bool Engine::poison(tsr_code code, const std::string& text) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load(std::memory_order_relaxed)) return false;
    failure_code_ = code;
    failure_ = text;
    for (const Peer& peer : peers_) peer.link.renounce();  // before anybody here hears of it
    failed_.store(true, std::memory_order_release);
  }
  eventfd_write(wake_.get(), 1);
  return true;
}

void Engine::throw_if_failed() const {
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  throw sdk::Failure(failure_code_, failure_);
}

void Engine::fail(tsr_code code, const std::string& text) {
  if (poison(code, text)) tell_all(ControlKind::kAbort, code, text);
  throw_if_failed();
  __builtin_unreachable();
}

void Engine::abort(const std::string& reason) noexcept {
  if (poison(TSR_CANCELLED, "tcp: aborted by this rank: " + reason)) {
    tell_all(ControlKind::kAbort, TSR_ABORTED, "tcp: " + rank_text(name_) + " aborted: " + reason);
  }
}

// Control connections are never full: each carries a frame or two in its life.
void Engine::tell_all(ControlKind kind, tsr_code code, const std::string& text, uint64_t sequence) noexcept {
  ControlFrame frame;
  frame.kind = kind;
  frame.code = code;
  frame.sequence = static_cast<uint32_t>(sequence);
  set_text(frame.text, sizeof(frame.text), text);
  const std::lock_guard lock(mutex_);
  for (const Peer& peer : peers_) {
    if (send(peer.link.control(), &frame, sizeof(frame), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) continue;
  }
}

// Takes what has come over the control connection: a notice of failure ends the group here as well, and so does the
// connection's end without a goodbye. `error` tells why, where the data connection knew it.
void Engine::read_control(Peer& peer, const Op& op, int error) {
  while (!peer.left) {
    const ssize_t n = recv(peer.link.control(), reinterpret_cast<char*>(&peer.control) + peer.control_got,
                           sizeof(ControlFrame) - peer.control_got, MSG_DONTWAIT);
    if (n < 0 && try_again(errno)) return;
    if (n <= 0) {
      const int cause = n < 0 ? errno : error;
      fail(TSR_ABORTED, "tcp: " + rank_text(peer.name) + " died during " + name_of(op.header) + " (" +
                            (cause == 0 ? "connection closed" : std::strerror(cause)) + ")");
    }
    peer.control_got += static_cast<size_t>(n);
    if (peer.control_got < sizeof(ControlFrame)) continue;
    peer.control_got = 0;
    if (peer.control.magic != kControlMagic) {
      fail(TSR_DATA_LOSS, "tcp: a damaged control message from " + rank_text(peer.name));
    }
    if (peer.control.kind == ControlKind::kProbe) {
      peer.waits_for = safe_text(peer.control.text, sizeof(peer.control.text));
      peer.waits_in = peer.control.sequence;
      continue;
    }
    if (peer.control.kind == ControlKind::kAbort) {
      fail(peer.control.code == TSR_OK ? TSR_ABORTED : peer.control.code,
           safe_text(peer.control.text, sizeof(peer.control.text)));
    }
    peer.left = true;
  }
}

// The data connection has ended. Why is known to the control connection, now or in a moment.
void Engine::lost(Peer& peer, const Op& op, int error) {
  if (error == EBADMSG) fail(TSR_DATA_LOSS, "tcp: damaged shared memory from " + rank_text(peer.name));
  if (is_no_way_there(error)) {
    probe(op, "");
    const Clock::time_point now = Clock::now();
    const Clock::time_point answers_by = std::clamp(op.deadline, now + kLeastProbeTime, now + kProbeTime);
    while (!unreachable().empty() && Clock::now() < answers_by)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::vector<int32_t> ranks = unreachable();
    if (ranks.empty()) ranks = {peer.name};
    fail(TSR_ABORTED, "tcp: " + rank_list(ranks) + " cannot be reached any more: the connection was lost during " +
                          name_of(op.header) + " (" + std::strerror(error) + ")");
  }
  const Clock::time_point until = std::min(op.deadline, Clock::now() + std::chrono::seconds(1));
  do {
    read_control(peer, op, error);
    if (peer.left) {
      // Whoever left may have done so because of another, whose word is here, too.
      for (Peer& other : peers_) read_control(other, op, 0);
      fail(TSR_ABORTED,
           "tcp: " + rank_text(peer.name) + " closed its group before " + name_of(op.header) + " was done");
    }
    pollfd polled{peer.link.control(), POLLIN, 0};
    poll(&polled, 1, 10);
  } while (Clock::now() < until);
  fail(TSR_ABORTED, "tcp: " + rank_text(peer.name) + " died during " + name_of(op.header) + " (" +
                        (error == 0 ? "connection closed" : std::strerror(error)) + ")");
}

void Engine::probe(const Op& op, const std::string& waits_for) noexcept {
  tell_all(ControlKind::kProbe, TSR_OK, waits_for, op.header.sequence);
}

// Ranks whose machine has not acknowledged the probe. A process that is stopped or busy has a machine that does.
std::vector<int32_t> Engine::unreachable() const {
  std::vector<int32_t> ranks;
  for (const Peer& peer : peers_) {
    int unacknowledged = 0;
    if (!peer.left && ioctl(peer.link.control(), SIOCOUTQ, &unacknowledged) == 0 && unacknowledged > 0) {
      ranks.push_back(peer.name);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void Engine::late(const Op& op) {
  const std::vector<int32_t> away = unreachable();
  if (!away.empty()) {
    fail(TSR_DEADLINE_EXCEEDED, "tcp: " + rank_list(away) + " cannot be reached any more: " + within(op));
  }
  for (Peer& peer : peers_) read_control(peer, op, 0);
  fail(TSR_DEADLINE_EXCEEDED, who_is_late(op));
}

// Whether it is not there yet because it waits for another one, in an earlier operation.
bool Engine::is_held_up(const Peer& peer, const Op& op) {
  return !peer.waits_for.empty() && static_cast<int32_t>(peer.waits_in - static_cast<uint32_t>(op.header.sequence)) < 0;
}

// Those from whom nothing of the operation has come, less those who are held up, unless all are: then it is what these
// say. If something has come from all, those with whom it is unfinished.
std::string Engine::who_is_late(const Op& op) const {
  std::vector<int32_t> silent, unfinished;
  const Peer* held_up = nullptr;
  for (const Peer& peer : peers_) {
    const bool receives = peer.receiving != nullptr && peer.receiving->header.sequence <= op.header.sequence;
    const bool sends = peer.sending != nullptr && peer.sending->header.sequence <= op.header.sequence;
    if (receives && peer.got < sizeof(sdk::OpHeader)) {
      if (is_held_up(peer, op))
        held_up = &peer;
      else
        silent.push_back(peer.name);
    } else if (receives || sends) {
      unfinished.push_back(peer.name);
    }
  }
  if (silent.empty() && held_up) return held_up->waits_for;
  std::vector<int32_t>& ranks = silent.empty() ? unfinished : silent;
  std::sort(ranks.begin(), ranks.end());
  return "tcp: " + rank_list(ranks) + (ranks.size() > 1 ? " were" : " was") + " late: " + within(op);
}

}  // namespace tessera::tcp
