// Simulates network faults on one machine: a proxy between ranks that delays data, limits bandwidth, cuts connections
// and leaves them half open. Ranks call each other through it if their transport has the option proxy=ADDRESS:PORT, and
// name the destination at the beginning of each connection.
//
// The proxy does not interpret the bytes. It treats both directions of a connection alike.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>

#include "door.h"

namespace tessera::tcp {

// Selects the connections between two ranks of the job, whichever of them called.
struct Between {
  int32_t one = -1, other = -1;  // -1: any rank

  bool has(const Route& route) const {
    const auto is = [](int32_t wanted, int32_t rank) { return wanted < 0 || wanted == rank; };
    return (is(one, route.caller) && is(other, route.called)) || (is(one, route.called) && is(other, route.caller));
  }
};

struct Way {
  std::chrono::microseconds delay{0};  // per byte, in each direction
  double bytes_per_s = 0;              // per connection and direction; 0: unlimited
};

// Only the io_context's thread may use this; others post().
class Proxy {
 public:
  // Listens at `where`; port 0 means any. Throws boost::system::system_error.
  Proxy(asio::io_context& io, const Endpoint& where);
  ~Proxy();
  Endpoint endpoint() const { return acceptor_.local_endpoint(); }

  // Sets the faults between these ranks, for existing and new connections.
  void set(Between ranks, Way way);
  // Ends connections with a reset on both sides, also new ones until set() is called.
  void cut(Between ranks);
  // Lets no further bytes pass and tells nobody, so that connections are half open.
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
  std::vector<Rule> rules_;  // the last rule that matches counts
  std::list<std::weak_ptr<Line>> lines_;
};

}  // namespace tessera::tcp
