#include "world.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tessera::tcp::simulation {
namespace {

constexpr size_t kLeastRoom = size_t{16} << 10;
constexpr int64_t kMostSteps = 4000000;  // a job with more steps counts as an endless loop

World*& current_world() {
  thread_local World* world = nullptr;
  return world;
}

size_t sum(const iovec* pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

}  // namespace

World::World(uint64_t seed, int ranks, const Weather& weather)
    : random_(seed), weather_(weather), ranks_(static_cast<size_t>(ranks)) {
  current_world() = this;
}

World::~World() { current_world() = nullptr; }

World* World::current() { return current_world(); }

std::pair<int, int> World::connect(int one, int other) {
  const auto number = static_cast<int>(connections_.size());
  Connection& connection = connections_.emplace_back();
  connection.ends[0].rank = one;
  connection.ends[1].rank = other;
  descriptors_.push_back({.connection = number, .end = 0});
  descriptors_.push_back({.connection = number, .end = 1});
  const int last = kFirstDescriptor + static_cast<int>(descriptors_.size()) - 1;
  return {last - 1, last};
}

void World::start(int rank, std::function<void()> body) {
  tasks_.push_back(std::make_unique<Task>(rank, std::move(body)));
}

void World::at(Time when, std::function<void()> what) {
  events_.emplace(when, std::move(what));
  remember(when);
}

// --- scheduling ------------------------------------------------------------------------------------------------------

std::string World::run() {
  std::string problem;
  for (int64_t steps = 0;; ++steps) {
    run_events();
    if (all_done()) break;
    if (steps > kMostSteps) {
      problem = "it does not end";
      break;
    }
    running_ = next_task();
    if (running_ == nullptr) {
      if (advance()) continue;
      problem = "nobody goes on";
      break;
    }
    running_->waits = false;
    running_->fiber.enter();
    running_ = nullptr;
  }
  over_ = true;
  for (const auto& task : tasks_) {
    running_ = task.get();
    while (!task->fiber.has_ended()) task->fiber.enter();
  }
  return problem;
}

bool World::all_done() const {
  return std::all_of(tasks_.begin(), tasks_.end(), [&](const auto& task) {
    const RankState& rank = ranks_[static_cast<size_t>(task->rank)];
    return task->fiber.has_ended() || rank.killed || (rank.stopped && events_.empty());
  });
}

void World::run_events() {
  while (!events_.empty() && events_.begin()->first <= now_) {
    const std::function<void()> what = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    what();
  }
}

World::Task* World::next_task() {
  std::vector<Task*> able;
  for (const auto& task : tasks_) {
    if (may_run(*task)) able.push_back(task.get());
  }
  return able.empty() ? nullptr : able[random_.below(able.size())];
}

bool World::may_run(const Task& task) {
  const RankState& rank = ranks_[static_cast<size_t>(task.rank)];
  if (task.fiber.has_ended() || rank.killed || rank.stopped) return false;
  if (!task.waits || task.until <= now_) return true;
  return std::any_of(task.fds, task.fds + task.count, [&](const pollfd& fd) { return ready_events(fd) != 0; });
}

// Advances to the next time at which something may change; returns false if nothing ever will.
bool World::advance() {
  Time next = kNever;
  for (const auto& task : tasks_) {
    const RankState& rank = ranks_[static_cast<size_t>(task->rank)];
    if (task->waits && !rank.killed && !rank.stopped && !task->fiber.has_ended()) next = std::min(next, task->until);
  }
  while (!times_.empty() && times_.top() <= now_.time_since_epoch().count()) times_.pop();
  if (!times_.empty()) next = std::min(next, Time(Duration(times_.top())));
  if (next == kNever) return false;
  now_ = std::max(now_, next);
  return true;
}

void World::step() {
  if (over_) {
    now_ += milliseconds(100);
    return;
  }
  now_ += random_.up_to(weather_.tick);
  Fiber::leave();
}

void World::wait(Time until, const pollfd* fds, size_t count) {
  Task& task = *running_;
  task.until = until;
  task.fds = fds;
  task.count = count;
  task.waits = true;
  Fiber::leave();
  task.fds = nullptr;
  task.count = 0;
}

void World::sleep(Duration how_long) {
  if (over_) return step();
  wait(now_ + how_long, nullptr, 0);
}

// --- faults ----------------------------------------------------------------------------------------------------------

void World::kill(int rank) {
  ranks_[static_cast<size_t>(rank)].killed = true;
  forget_memory(rank);
  for (Connection& connection : connections_) {
    for (int end : {0, 1}) {
      if (connection.ends[end].rank == rank) close_end(connection, end);
    }
  }
}

void World::cut_off(const std::vector<int>& ranks) {
  const auto in = [&](int rank) { return std::find(ranks.begin(), ranks.end(), rank) != ranks.end(); };
  for (Connection& connection : connections_) {
    if (in(connection.ends[0].rank) == in(connection.ends[1].rank)) continue;
    for (Flow& flow : connection.flows) {
      deliver(flow);
      flow.lost = true;
      for (Segment& segment : flow.flying) segment.arrives = kNever;
      for (Segment& segment : flow.unacked) {
        if (segment.acked > now_) segment.acked = kNever;
        remember(segment.sent + weather_.patience);
      }
      if (flow.end_at > now_) flow.end_at = kNever;
    }
    for (End& end : connection.ends) {
      if (end.reset_at > now_) end.reset_at = kNever;
    }
  }
}

void World::reset(int one, int other, size_t which) {
  for (Connection& connection : connections_) {
    const int a = connection.ends[0].rank, b = connection.ends[1].rank;
    if (!((a == one && b == other) || (a == other && b == one)) || which-- > 0) continue;
    for (int end : {0, 1}) reset_end(connection, end, now_ + travel());
    return;
  }
}

// --- the network -----------------------------------------------------------------------------------------------------

void World::deliver(Flow& flow) {
  while (!flow.flying.empty() && flow.flying.front().arrives <= now_) {
    flow.ready += flow.flying.front().bytes;
    flow.flying.pop_front();
  }
  while (!flow.unacked.empty() && flow.unacked.front().acked <= now_) flow.unacked.pop_front();
}

bool World::timed_out(const Flow& flow) const {
  return !flow.unacked.empty() && now_ - flow.unacked.front().sent >= weather_.patience;
}

// The error of the connection as this end sees it; 0 if there is none.
int World::error_of(Connection& connection, int end) {
  End& own = connection.ends[end];
  if (own.reset_at <= now_) return std::exchange(own.told_reset, true) ? EPIPE : ECONNRESET;
  return timed_out(connection.flows[end]) ? ETIMEDOUT : 0;
}

void World::reset_end(Connection& connection, int end, Time when) {
  if (connection.flows[1 - end].lost) return;
  connection.ends[end].reset_at = std::min(connection.ends[end].reset_at, when);
  remember(connection.ends[end].reset_at);
}

// A side that closes before it has read everything resets the connection, as in Linux, and its unsent data is lost.
void World::close_end(Connection& connection, int end) {
  End& own = connection.ends[end];
  if (std::exchange(own.closed, true)) return;
  Flow& out = connection.flows[end];
  Flow& in = connection.flows[1 - end];
  deliver(in);
  deliver(out);
  const Time after_data = std::max(out.last_arrival, now_ + travel());
  if (in.ready > 0) {
    while (!out.flying.empty() && out.waiting() > kLeastRoom && random_.one_in(2)) {
      out.bytes.resize(out.bytes.size() - out.flying.back().bytes);
      out.flying.pop_back();
    }
    out.unacked.clear();
    reset_end(connection, 1 - end, after_data);
  } else if (!in.flying.empty()) {
    reset_end(connection, 1 - end, std::max(after_data, later(in.flying.front().arrives, travel())));
  }
  if (out.lost) return;
  out.end_at = after_data;
  remember(out.end_at);
}

size_t World::allowed(size_t bytes) { return std::min(bytes, size_t{1} + random_.below(weather_.at_once)); }

World::Descriptor* World::find(int fd) {
  const auto index = static_cast<size_t>(fd - kFirstDescriptor);
  return fd < kFirstDescriptor || index >= descriptors_.size() ? nullptr : &descriptors_[index];
}

ssize_t World::send(int fd, const iovec* pieces, size_t count, bool few) {
  const Descriptor& descriptor = *find(fd);
  Connection& connection = connections_[static_cast<size_t>(descriptor.connection)];
  Flow& flow = connection.flows[descriptor.end];
  deliver(flow);
  if (over_) errno = EPIPE;
  if (over_) return -1;
  if (const int error = error_of(connection, descriptor.end); error != 0) {
    errno = error;
    return -1;
  }
  const size_t capacity = few ? kLeastRoom : weather_.capacity, wanted = sum(pieces, count);
  const size_t room = capacity - std::min(capacity, flow.waiting());
  size_t left = !few ? std::min(allowed(wanted), room) : wanted <= room ? wanted : 0;
  const size_t bytes = left;
  if (bytes == 0) {
    errno = EAGAIN;
    return -1;
  }
  for (size_t i = 0; left > 0; ++i) {
    const size_t n = std::min(left, pieces[i].iov_len);
    flow.bytes.append(static_cast<const char*>(pieces[i].iov_base), n);
    left -= n;
  }
  Segment segment{now_, kNever, kNever, bytes};
  if (!flow.lost) {
    segment.arrives = flow.last_arrival = std::max(flow.last_arrival, now_ + travel());
    segment.acked = segment.arrives + travel();
    if (!flow.unacked.empty()) segment.acked = std::max(segment.acked, flow.unacked.back().acked);
    if (connection.ends[1 - descriptor.end].closed) reset_end(connection, descriptor.end, segment.acked);
    remember(segment.arrives);
  } else {
    remember(now_ + weather_.patience);
  }
  flow.flying.push_back(segment);
  flow.unacked.push_back(segment);
  return static_cast<ssize_t>(bytes);
}

ssize_t World::receive(int fd, const iovec* pieces, size_t count) {
  const Descriptor& descriptor = *find(fd);
  Connection& connection = connections_[static_cast<size_t>(descriptor.connection)];
  Flow& flow = connection.flows[1 - descriptor.end];
  if (over_) return 0;
  deliver(flow);
  deliver(connection.flows[descriptor.end]);
  if (flow.ready == 0) {
    const bool told = connection.ends[descriptor.end].told_reset;
    const int error = error_of(connection, descriptor.end);
    if (flow.end_at <= now_ || (error != 0 && told)) return 0;
    errno = error != 0 ? error : EAGAIN;
    return -1;
  }
  const size_t bytes = std::min(allowed(sum(pieces, count)), flow.ready);
  size_t left = bytes;
  for (size_t i = 0; left > 0; ++i) {
    const size_t n = std::min(left, pieces[i].iov_len);
    std::memcpy(pieces[i].iov_base, flow.bytes.data() + flow.begin, n);
    flow.begin += n;
    left -= n;
  }
  flow.ready -= bytes;
  if (flow.begin > (size_t{1} << 18) || flow.waiting() == 0) {
    flow.bytes.erase(0, flow.begin);
    flow.begin = 0;
  }
  return static_cast<ssize_t>(bytes);
}

short World::ready_events(const pollfd& polled) {
  const Descriptor* descriptor = find(polled.fd);
  if (descriptor == nullptr) return 0;
  if (descriptor->connection < 0) return descriptor->event_set ? POLLIN : 0;
  Connection& connection = connections_[static_cast<size_t>(descriptor->connection)];
  Flow& in = connection.flows[1 - descriptor->end];
  Flow& out = connection.flows[descriptor->end];
  deliver(in);
  deliver(out);
  const bool broken = connection.ends[descriptor->end].reset_at <= now_ || timed_out(out);
  short events = broken ? POLLERR | POLLHUP : 0;
  if ((polled.events & POLLIN) != 0 && (broken || in.ready > 0 || in.end_at <= now_)) events |= POLLIN;
  if ((polled.events & POLLOUT) != 0 && (broken || out.waiting() < weather_.capacity)) events |= POLLOUT;
  return events;
}

int World::poll(pollfd* fds, size_t count, int timeout_ms) {
  step();
  if (!over_ && weather_.interrupts && random_.one_in(50)) {
    errno = EINTR;
    return -1;
  }
  if (!over_) wait(timeout_ms < 0 ? kNever : now_ + milliseconds(timeout_ms), fds, count);
  int ready = 0;
  for (size_t i = 0; i < count; ++i) {
    fds[i].revents = over_ && fds[i].fd >= 0 ? POLLIN | POLLHUP : ready_events(fds[i]);
    ready += fds[i].revents != 0;
  }
  return ready;
}

int World::event() {
  descriptors_.push_back({});
  return kFirstDescriptor + static_cast<int>(descriptors_.size()) - 1;
}

void World::write_event(int fd) { find(fd)->event_set = true; }

void World::close(int fd) {
  const Descriptor& descriptor = *find(fd);
  if (descriptor.connection < 0) return;
  close_end(connections_[static_cast<size_t>(descriptor.connection)], descriptor.end);
}

int World::unacknowledged(int fd) {
  const Descriptor& descriptor = *find(fd);
  Flow& flow = connections_[static_cast<size_t>(descriptor.connection)].flows[descriptor.end];
  deliver(flow);
  size_t bytes = 0;
  for (const Segment& segment : flow.unacked) bytes += segment.bytes;
  return static_cast<int>(bytes);
}

bool World::can_read(int process) {
  const auto rank = static_cast<size_t>(process - kFirstProcess);
  step();
  const bool there = !over_ && rank < ranks_.size() && ranks_[rank].memory;
  memory_reads_ += there;
  return there;
}

}  // namespace tessera::tcp::simulation
