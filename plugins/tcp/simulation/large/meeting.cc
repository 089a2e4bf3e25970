// The messages of a rendezvous in virtual time: each rank proves itself to rank 0 and gets its teacher's address, then
// proves itself to the teacher and gets the list of addresses.
#include <algorithm>
#include <functional>
#include <queue>

#include "../../wire.h"
#include "job.h"

namespace tessera::tcp::simulation {
namespace {

constexpr size_t kNoticeHead = 16;     // size of rendezvous.cc's Notice
constexpr size_t kWhoIsMissing = 256;  // about the size of the text that a rank gets when it arrives

class Meeting {
 public:
  Meeting(int ranks, const Network& network) : network_(network), ranks_(static_cast<size_t>(ranks)) {}

  PathCost run() {
    const int world = static_cast<int>(ranks_.size());
    knows_since_.assign(ranks_.size(), -1);
    int arrived = 1;
    for (int rank = 1; rank < world; ++rank) {
      knock(rank, 0, 0, [this, rank, world, &arrived](double now) {
        send(0, rank, kNoticeHead + kWhoIsMissing, now);
        if (++arrived == world) all_met(now);
      });
    }
    double end = 0;
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      end = std::max(end, event.when);
      event.what(event.when);
    }
    PathCost cost{"rendezvous", {}, {}, end};
    for (const Rank& rank : ranks_) {
      cost.sent = {std::max(cost.sent.messages, rank.sent.messages), std::max(cost.sent.bytes, rank.sent.bytes)};
      cost.received = {std::max(cost.received.messages, rank.received.messages),
                       std::max(cost.received.bytes, rank.received.bytes)};
    }
    return cost;
  }

 private:
  using Then = std::function<void(double)>;
  struct Rank {
    double sends_from = 0, receives_from = 0;
    Traffic sent, received;
    std::vector<Then> pupils;  // teach the waiting ranks, as soon as this rank has the list
  };
  struct Event {
    double when;
    Then what;
    bool operator<(const Event& other) const { return when > other.when; }
  };

  // Returns the time at which the message has been read.
  double send(int from, int to, size_t bytes, double now) {
    Rank& sender = ranks_[static_cast<size_t>(from)];
    Rank& receiver = ranks_[static_cast<size_t>(to)];
    const double cost = network_.message_s + static_cast<double>(bytes) / network_.bytes_per_s;
    sender.sends_from = std::max(sender.sends_from, now) + cost;
    receiver.receives_from = std::max(receiver.receives_from + cost, sender.sends_from + network_.latency_s);
    ++sender.sent.messages;
    sender.sent.bytes += static_cast<int64_t>(bytes);
    ++receiver.received.messages;
    receiver.received.bytes += static_cast<int64_t>(bytes);
    return receiver.receives_from;
  }
  void say(int from, int to, size_t bytes, double now, Then then) {
    events_.push({send(from, to, bytes, now), std::move(then)});
  }

  // Sends the four messages by which two ranks prove themselves. Then it runs `then` on the called rank.
  void knock(int caller, int called, double now, Then then) {
    say(caller, called, sizeof(Hello), now + 2 * network_.latency_s, [=, this](double t) {
      say(called, caller, sizeof(Nonce), t, [=, this](double u) {
        say(caller, called, sizeof(Mac), u, [=, this](double v) {
          say(called, caller, sizeof(Mac), v, [](double) {});
          then(v);
        });
      });
    });
  }

  void all_met(double now) {
    learnt(0, now);
    const bool at_once = ranks_.size() <= kToldByRank0;
    for (int rank = 1; rank < static_cast<int>(ranks_.size()); ++rank) {
      const size_t addresses = at_once ? ranks_.size() : 1;
      say(0, rank, kNoticeHead + sizeof(GroupId) + addresses * sizeof(Address), now, [=, this](double t) {
        if (!at_once) ask_teacher(rank, t);
      });
    }
  }

  void ask_teacher(int rank, double now) {
    const int teacher = teacher_of(rank);
    knock(rank, teacher, now, [=, this](double t) {
      const Then teach = [=, this](double u) {
        say(teacher, rank, ranks_.size() * sizeof(Address), u, [=, this](double v) { learnt(rank, v); });
      };
      const double since = knows_since_[static_cast<size_t>(teacher)];
      if (since >= 0)
        teach(std::max(since, t));
      else
        ranks_[static_cast<size_t>(teacher)].pupils.push_back(teach);
    });
  }

  void learnt(int rank, double now) {
    knows_since_[static_cast<size_t>(rank)] = now;
    for (const Then& teach : ranks_[static_cast<size_t>(rank)].pupils) teach(now);
  }

  Network network_;
  std::vector<Rank> ranks_;
  std::vector<double> knows_since_;  // by rank: when it had the list; -1: not yet
  std::priority_queue<Event> events_;
};

}  // namespace

PathCost simulate_meeting(int ranks, const Network& network) { return Meeting(ranks, network).run(); }

}  // namespace tessera::tcp::simulation
