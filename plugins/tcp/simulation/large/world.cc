#include "world.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tessera::tcp::simulation {
namespace {

LargeWorld*& current_large_world() {
  thread_local LargeWorld* world = nullptr;
  return world;
}

}  // namespace

LargeWorld::LargeWorld(int ranks, const Network& network) : network_(network), ranks_(static_cast<size_t>(ranks)) {
  for (int r = 0; r < ranks; ++r) ranks_[static_cast<size_t>(r)].number = r;
  current_large_world() = this;
}

LargeWorld::~LargeWorld() { current_large_world() = nullptr; }

LargeWorld* LargeWorld::current() { return current_large_world(); }

void LargeWorld::start(int rank, std::function<void()> body) {
  Rank& started = ranks_[static_cast<size_t>(rank)];
  started.fiber = std::make_unique<Fiber>(std::move(body));
  wake(started, now_);
}

void LargeWorld::wake(Rank& rank, Time when) {
  if (when >= rank.wakes) return;
  rank.wakes = when;
  wakes_.emplace(when, rank.number);
}

void LargeWorld::run() {
  while (!wakes_.empty()) {
    const auto [when, number] = wakes_.top();
    wakes_.pop();
    Rank& rank = ranks_[static_cast<size_t>(number)];
    if (when != rank.wakes || rank.dead || rank.fiber->has_ended()) continue;
    now_ = std::max(now_, when);
    rank.wakes = Time::max();
    running_ = &rank;
    rank.fiber->enter();
  }
  over_ = true;
  for (Rank& rank : ranks_) {
    running_ = &rank;
    while (!rank.fiber->has_ended()) rank.fiber->enter();
  }
}

void LargeWorld::close() {
  running_->gone = std::max(now_, running_->sends_from) + seconds(network_.latency_s);
  ended_.push_back(running_->number);
  if (over_) return;
  for (Rank& other : ranks_) wake(other, running_->gone);
}

void LargeWorld::die() {
  running_->dead = true;
  close();
  while (!over_) Fiber::leave();
  throw Died{};
}

void LargeWorld::sleep(Duration how_long) {
  if (over_) {
    now_ += how_long;
    return;
  }
  const Time until = now_ + how_long;
  while (now_ < until && !over_) {
    wake(*running_, until);
    Fiber::leave();
  }
}

// --- messages --------------------------------------------------------------------------------------------------------

LargeWorld::Duration LargeWorld::cost(size_t bytes) const {
  return seconds(network_.message_s + static_cast<double>(bytes) / network_.bytes_per_s);
}

LargeWorld::Time LargeWorld::deliver(Rank& from, Rank& to, size_t bytes) {
  ++from.sent.messages;
  from.sent.bytes += static_cast<int64_t>(bytes);
  from.sends_from = std::max(from.sends_from, now_) + cost(bytes);
  const Time comes = from.sends_from + seconds(network_.latency_s);
  to.receives_from = std::max(to.receives_from + cost(bytes), comes);
  to.arrivals.push_back(to.receives_from);
  // A rank with many messages under way wakes when half of them have arrived, instead of for each.
  wake(to, to.arrivals.size() > 32 ? to.arrivals[to.arrivals.size() / 2] : to.receives_from);
  return to.receives_from;
}

void LargeWorld::Queue::add(int from, const Message& message, size_t ranks) {
  if (first.empty()) {
    first.assign(ranks, kNone);
    last.assign(ranks, kNone);
  }
  const auto number = static_cast<int32_t>(messages.size());
  const auto sender = static_cast<size_t>(from);
  (first[sender] == kNone ? first[sender] : messages[static_cast<size_t>(last[sender])].next) = number;
  last[sender] = number;
  messages.push_back(message);
  ++left;
}

LargeWorld::Message* LargeWorld::Queue::front(int from) {
  const int32_t number = first.empty() ? kNone : first[static_cast<size_t>(from)];
  return number == kNone ? nullptr : &messages[static_cast<size_t>(number)];
}

void LargeWorld::Queue::pop(int from) {
  first[static_cast<size_t>(from)] = front(from)->next;
  if (--left > 0) return;
  messages.clear();
  bytes.clear();
}

size_t LargeWorld::send(int to, const iovec* pieces, size_t count) {
  Rank& receiver = ranks_[static_cast<size_t>(to)];
  Queue& queue = receiver.data;
  const size_t at = queue.bytes.size();
  for (size_t i = 0; i < count; ++i) {
    const auto* from = static_cast<const char*>(pieces[i].iov_base);
    queue.bytes.insert(queue.bytes.end(), from, from + pieces[i].iov_len);
  }
  const size_t bytes = queue.bytes.size() - at;
  if (receiver.gone <= now_ || over_) {  // no rank reads it
    queue.bytes.resize(at);
    return bytes;
  }
  queue.add(running_->number, {kNone, static_cast<uint32_t>(bytes), 0, at, deliver(*running_, receiver, bytes)},
            ranks_.size());
  return bytes;
}

ssize_t LargeWorld::receive(int from, iovec* pieces, size_t count) {
  Queue& queue = running_->data;
  Message* message = queue.front(from);
  if (message == nullptr || message->arrives > now_) {
    if (message == nullptr && (over_ || ranks_[static_cast<size_t>(from)].gone <= now_)) return 0;
    errno = EAGAIN;
    return -1;
  }
  ssize_t got = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t n = std::min<size_t>(pieces[i].iov_len, message->bytes - message->taken);
    std::memcpy(pieces[i].iov_base, queue.bytes.data() + message->at + message->taken, n);
    message->taken += static_cast<uint32_t>(n);
    got += static_cast<ssize_t>(n);
  }
  running_->received.bytes += got;
  if (message->taken == message->bytes) {
    ++running_->received.messages;
    queue.pop(from);
  }
  return got;
}

void LargeWorld::tell(int from, int to, const sdk::Notice& notice) {
  Rank& sender = ranks_[static_cast<size_t>(from)];
  Rank& receiver = ranks_[static_cast<size_t>(to)];
  if (sender.dead || receiver.gone <= now_ || over_) return;
  if (sender.told_number < 0 || std::memcmp(&sender.told, &notice, sizeof(notice)) != 0) {
    sender.told_number = static_cast<int64_t>(notices_.size());
    sender.told = notice;
    notices_.push_back(notice);
  }
  receiver.notices.add(
      from,
      {kNone, sizeof(notice), 0, static_cast<size_t>(sender.told_number), deliver(sender, receiver, sizeof(notice))},
      ranks_.size());
}

sdk::Heard LargeWorld::hear(int from, sdk::Notice* notice) {
  Message* const message = running_->notices.front(from);
  if (message != nullptr && message->arrives <= now_) {
    *notice = notices_[message->at];
    ++running_->received.messages;
    running_->received.bytes += sizeof(*notice);
    running_->notices.pop(from);
    return {sdk::Heard::kNotice, 0};
  }
  const bool gone = over_ || (message == nullptr && ranks_[static_cast<size_t>(from)].gone <= now_);
  return {gone ? sdk::Heard::kEnd : sdk::Heard::kNothing, 0};
}

// --- sleeping --------------------------------------------------------------------------------------------------------

bool LargeWorld::hears(int from) {
  const Message* const message = running_->notices.front(from);
  return message != nullptr ? message->arrives <= now_ : ranks_[static_cast<size_t>(from)].gone <= now_;
}

// A descriptor for notices is the other rank's number. The last one is the engine's own event, and all others are -1.
void LargeWorld::mark_notices(pollfd* fds, size_t count) {
  if (running_->notices.left == 0 && ended_.empty()) return;
  for (size_t i = 1; i + 1 < count; i += 2) {
    if (fds[i].fd >= 0 && hears(fds[i].fd)) fds[i].revents = POLLIN;
  }
}

int LargeWorld::poll(pollfd* fds, size_t count, int timeout_ms) {
  if (over_) {
    now_ += std::chrono::milliseconds(100);
    return 0;
  }
  if (timeout_ms > 0) {
    std::deque<Time>& arrivals = running_->arrivals;
    while (!arrivals.empty() && arrivals.front() <= now_) arrivals.pop_front();
    wake(*running_, now_ + std::chrono::milliseconds(timeout_ms));
    if (!arrivals.empty()) wake(*running_, arrivals[arrivals.size() > 32 ? arrivals.size() / 2 : 0]);
    Fiber::leave();
    while (!arrivals.empty() && arrivals.front() <= now_) arrivals.pop_front();
  }
  if (count == 1) {
    const bool there = hears(fds->fd);
    fds->revents = there ? POLLIN : 0;
    return there ? 1 : 0;
  }
  mark_notices(fds, count);
  return 1;
}

}  // namespace tessera::tcp::simulation
