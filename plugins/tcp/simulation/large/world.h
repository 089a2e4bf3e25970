// A simulated world for thousands of ranks. The SDK's engine (sdk/pair_engine.h) runs unchanged over links that only
// count and delay messages. Ranks are fibers of one thread and time is a number, as in ../world.h. There are no
// sockets, and a rank only needs memory for its messages under way.
//
// A message costs its sender and its receiver a fixed time and the time of its bytes, one after the other at each rank,
// and the latency between them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "../fiber.h"
#include "tessera/sdk/pair_link.h"

namespace tessera::tcp::simulation {

struct Network {
  double latency_s = 20e-6;
  double message_s = 2e-6;      // fixed time of a message for each of its two ranks
  double bytes_per_s = 12.5e9;  // bandwidth of one rank
};

struct Traffic {
  int64_t messages = 0, bytes = 0;
};

class LargeWorld {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Duration = Clock::duration;

  LargeWorld(int ranks, const Network& network);
  ~LargeWorld();
  LargeWorld(const LargeWorld&) = delete;
  LargeWorld& operator=(const LargeWorld&) = delete;
  static LargeWorld* current();  // null: system calls go to the real system

  void start(int rank, std::function<void()> body);
  // Runs until all ranks have ended. A rank that was killed ends only then.
  void run();
  Time now() const { return now_; }
  static Duration seconds(double s) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s)); }

  // Resets the running rank's counts, which sent() and received() return.
  void next_phase() { running_->sent = running_->received = {}; }
  Traffic sent() const { return running_->sent; }
  Traffic received() const { return running_->received; }
  struct Died {};  // thrown by die() when all others have ended
  // The running rank dies: it never goes on, and the others see the ends of its links.
  [[noreturn]] void die();
  void sleep(Duration how_long);

  // These are for links. The running rank is one of their ends.
  size_t send(int to, const iovec* pieces, size_t count);
  ssize_t receive(int from, iovec* pieces, size_t count);
  void tell(int from, int to, const sdk::Notice& notice);
  sdk::Heard hear(int from, sdk::Notice* notice);
  void close();  // the running rank has closed its links

  // System calls of the engine.
  int poll(pollfd* fds, size_t count, int timeout_ms);

 private:
  static constexpr int32_t kNone = -1;
  struct Message {
    int32_t next;  // index of the next message from the same rank
    uint32_t bytes, taken;
    size_t at;  // place in the queue's bytes; for a notice, its number
    Time arrives;
  };
  // Messages for one rank, with a list for each sender. The memory is reused when all messages have been taken.
  struct Queue {
    std::vector<Message> messages;
    std::vector<char> bytes;
    std::vector<int32_t> first, last;  // per sender, its first and last message; empty before the first message of any
    size_t left = 0;
    void add(int from, const Message& message, size_t ranks);
    Message* front(int from);
    void pop(int from);
  };
  struct Rank {
    int number = 0;
    std::unique_ptr<Fiber> fiber;
    Queue data, notices;
    std::deque<Time> arrivals;  // ordered times of arrivals after the rank looked last
    Time sends_from{}, receives_from{};
    Time wakes = Time::max();
    Time gone = Time::max();  // when other ranks see that its links have ended
    bool dead = false;
    sdk::Notice told;  // the last notice that it sent, often to many ranks
    int64_t told_number = -1;
    Traffic sent, received;
  };

  Time deliver(Rank& from, Rank& to, size_t bytes);
  void wake(Rank& rank, Time when);
  Duration cost(size_t bytes) const;
  bool hears(int from);
  void mark_notices(pollfd* fds, size_t count);

  Network network_;
  std::vector<Rank> ranks_;
  std::vector<sdk::Notice> notices_;
  std::priority_queue<std::pair<Time, int>, std::vector<std::pair<Time, int>>, std::greater<>> wakes_;
  std::vector<int> ended_;  // ranks whose links have ended
  Rank* running_ = nullptr;
  Time now_{std::chrono::hours(1)};
  bool over_ = false;
};

// One end of the connection between two ranks.
class LargeLink : public sdk::PairLink {
 public:
  static constexpr const char* kName = "tcp";
  struct Notices {
    int own = 0, other = 0;
    int descriptor() const { return other; }
    void tell(const sdk::Notice& notice) const { LargeWorld::current()->tell(own, other, notice); }
    sdk::Heard hear(sdk::Notice* notice) { return LargeWorld::current()->hear(other, notice); }
  };

  LargeLink() = default;
  LargeLink(int own, int other) : notices_{own, other} {}
  ssize_t send(iovec* pieces, size_t count, const iovec*) {
    return static_cast<ssize_t>(LargeWorld::current()->send(notices_.other, pieces, count));
  }
  ssize_t receive(iovec* pieces, size_t count) { return LargeWorld::current()->receive(notices_.other, pieces, count); }
  bool sleeps(uint32_t, pollfd*) { return true; }  // its descriptor stays -1: the world knows what arrives
  Notices& notices() { return notices_; }
  const Notices& notices() const { return notices_; }

 private:
  Notices notices_;
};

}  // namespace tessera::tcp::simulation
