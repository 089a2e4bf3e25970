// A simulated world for the transport's engine, which runs unchanged: ranks are fibers of one thread, time is a number,
// and the engine's system calls (system_calls.cc) end here. A seed decides everything: which rank runs next, how long
// bytes travel, how they are split.
//
// The network behaves like TCP in Linux. Data arrives whole and in order or not at all; a close is seen after the data;
// a close with unread data is a reset; data that stays unacknowledged for long ends the connection.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "fiber.h"
#include "tessera/sdk/random.h"

namespace tessera::tcp::simulation {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t next() { return random_.bits(); }
  uint64_t below(uint64_t end) { return end == 0 ? 0 : next() % end; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  Duration up_to(Duration most) {
    return Duration(static_cast<int64_t>(below(static_cast<uint64_t>(most.count()) + 1)));
  }

 private:
  sdk::Random random_;
};

struct Weather {
  Duration latency = microseconds(50);           // the smallest delay
  Duration jitter = microseconds(50);            // the largest additional delay
  Duration tick = microseconds(20);              // longest time of a rank's step
  Duration patience = std::chrono::seconds(30);  // a connection ends if bytes stay unacknowledged for longer
  size_t capacity = size_t{64} << 10;            // bytes in flight per direction of a connection
  size_t at_once = size_t{1} << 20;              // the most bytes that one call moves
  bool interrupts = false;                       // calls sometimes fail with EINTR
};

class World {
 public:
  World(uint64_t seed, int ranks, const Weather& weather);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  static World* current();  // null: system calls go to the real system

  // Connects two ranks; returns their descriptors.
  std::pair<int, int> connect(int one, int other);
  // Adds work for a rank. A rank may do several things concurrently, like threads.
  void start(int rank, std::function<void()> body);
  // Runs `what` at that time, outside all ranks.
  void at(Time when, std::function<void()> what);

  // Runs until all ranks that are not killed or stopped have ended. Returns the reason why the job never ends, or "".
  std::string run();
  Time now() const { return now_; }
  int64_t memory_reads() const { return memory_reads_; }
  Random& random() { return random_; }

  // These functions cause faults.
  void kill(int rank);
  void stop(int rank) { ranks_[static_cast<size_t>(rank)].stopped = true; }
  void go_on(int rank) { ranks_[static_cast<size_t>(rank)].stopped = false; }
  void cut_off(const std::vector<int>& ranks);   // from then on, nothing reaches or leaves these ranks
  void reset(int one, int other, size_t which);  // one of the connections between two ranks
  // From then on, no rank can read its memory.
  void forget_memory(int rank) { ranks_[static_cast<size_t>(rank)].memory = false; }

  // System calls of the running rank. Those that may take time let other ranks run. `few` says that any socket has
  // space for the bytes; they are then not split.
  ssize_t send(int fd, const iovec* pieces, size_t count, bool few = false);
  ssize_t receive(int fd, const iovec* pieces, size_t count);
  int poll(pollfd* fds, size_t count, int timeout_ms);
  void sleep(Duration how_long);
  void step();  // lets a moment pass
  int event();
  void write_event(int fd);
  void close(int fd);
  int unacknowledged(int fd);
  int process() const { return kFirstProcess + running_->rank; }
  bool can_read(int process);  // true if its memory can be read

  static constexpr int kFirstDescriptor = 1 << 24;
  static constexpr int kFirstProcess = 1 << 24;

 private:
  static constexpr Time kNever = Time::max();

  struct Segment {
    Time sent, arrives, acked;
    size_t bytes;
  };
  // One direction of a connection.
  struct Flow {
    std::string bytes;  // unread bytes, from `begin` on
    size_t begin = 0;
    size_t ready = 0;  // how many of them have arrived
    std::deque<Segment> flying, unacked;
    Time last_arrival{}, end_at = kNever;
    bool lost = false;  // true if nothing more arrives
    size_t waiting() const { return bytes.size() - begin; }
  };
  struct End {
    int rank = -1;
    bool closed = false, told_reset = false;
    Time reset_at = kNever;
  };
  struct Connection {
    Flow flows[2];  // from ends[0] to ends[1], and back
    End ends[2];
  };
  struct Descriptor {
    int connection = -1;  // -1: a timed event
    int end = 0;
    bool event_set = false;
  };
  struct RankState {
    bool killed = false, stopped = false, memory = true;
  };
  struct Task {
    Task(int r, std::function<void()> body) : rank(r), fiber(std::move(body)) {}
    int rank;
    Fiber fiber;
    bool waits = false;  // true if it waits until `until`, or for `fds`
    Time until{};
    const pollfd* fds = nullptr;
    size_t count = 0;
  };

  bool may_run(const Task& task);
  Task* next_task();
  bool advance();
  void run_events();
  bool all_done() const;
  void wait(Time until, const pollfd* fds, size_t count);
  short ready_events(const pollfd& polled);
  static Time later(Time at, Duration by) { return at == kNever ? kNever : at + by; }
  Duration travel() { return weather_.latency + random_.up_to(weather_.jitter); }
  void remember(Time when) {
    if (when != kNever) times_.push(when.time_since_epoch().count());
  }
  void deliver(Flow& flow);
  bool timed_out(const Flow& flow) const;
  int error_of(Connection& connection, int end);
  void close_end(Connection& connection, int end);
  void reset_end(Connection& connection, int end, Time when);
  size_t allowed(size_t bytes);
  Descriptor* find(int fd);

  Random random_;
  Weather weather_;
  std::vector<RankState> ranks_;
  std::vector<std::unique_ptr<Task>> tasks_;
  std::vector<Connection> connections_;
  std::vector<Descriptor> descriptors_;
  std::multimap<Time, std::function<void()>> events_;
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> times_;  // times at which something may change
  Task* running_ = nullptr;
  Time now_{std::chrono::hours(1)};
  int64_t memory_reads_ = 0;
  bool over_ = false;  // if set, everything that still runs fails
};

}  // namespace tessera::tcp::simulation
