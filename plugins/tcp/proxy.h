// The faults of a network, on one machine: a proxy between ranks that delays what they say, narrows the way,
// cuts connections and leaves them half open. Ranks call each other through it where their transport has the option
// proxy=ADDRESS:PORT, and say at the beginning of each connection where it is to go.
//
// It carries bytes and knows nothing of what they mean. Both directions of a connection are treated alike.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>

#include "door.h"

namespace tessera::tcp {

// Connections between two ranks of the job, whoever calls.
struct Between {
  int32_t one = -1, other = -1;  // -1: any rank

  bool has(const Route& route) const {
    const auto is = [](int32_t wanted, int32_t rank) { return wanted < 0 || wanted == rank; };
    return (is(one, route.caller) && is(other, route.called)) || (is(one, route.called) && is(other, route.caller));
  }
};

struct Way {
  std::chrono::microseconds delay{0};  // of each byte, each way
  double bytes_per_s = 0;              // of each connection, each way; 0: as fast as it gets
};

// Used by the io_context's thread alone: others post().
class Proxy {
 public:
  // Listens at `where`; port 0: any. Throws boost::system::system_error.
  Proxy(asio::io_context& io, const Endpoint& where);
  ~Proxy();
  Endpoint endpoint() const { return acceptor_.local_endpoint(); }

  // The faults between these ranks from now on, on connections that there are and on new ones.
  void set(Between ranks, Way way);
  // Connections end with a reset on both sides; new ones too, until set() is called.
  void cut(Between ranks);
  // Nothing passes any more, and nobody is told: connections are half open.
  void hold(Between ranks);

 private:
  struct Line;
  enum class State { kOpen, kCut, kHeld };
  struct Rule {
    Between ranks;
    Way way;
    State state;
  };
  Task<> accept_all();
  Task<> join(std::shared_ptr<TcpSocket> caller);
  void add(Rule rule);
  Rule rule_for(const Route& route) const;
  static void apply(const Rule& rule, Line& line);
  static Task<> read(std::shared_ptr<Line> line, int from);
  static Task<> write(std::shared_ptr<Line> line, int from);

  asio::ip::tcp::acceptor acceptor_;
  std::vector<Rule> rules_;  // the last one that fits counts
  std::list<std::weak_ptr<Line>> lines_;
};

}  // namespace tessera::tcp
