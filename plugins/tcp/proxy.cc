#include "proxy.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace tessera::tcp {
namespace {

using asio::use_awaitable;
using boost::system::error_code;
using Time = std::chrono::steady_clock::time_point;

// The most bytes in flight in each direction, like the queues of a network.
constexpr size_t kOnTheWay = size_t{4} << 20;
constexpr size_t kAtOnce = size_t{64} << 10;

// Lets a task sleep until something has changed. Because all tasks share a thread, nothing changes between a task's
// check and its sleep.
class Bell {
 public:
  explicit Bell(const asio::any_io_executor& executor) : timer_(executor) {}
  Task<> sleep(Time until = Time::max()) {
    timer_.expires_at(until);
    error_code rung;
    co_await timer_.async_wait(asio::redirect_error(use_awaitable, rung));
  }
  void ring() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

struct Packet {
  std::vector<char> bytes;
  Time arrives;
};

}  // namespace

// A connection through the proxy. ends[0] is the caller, and ends[1] was called.
struct Proxy::Line {
  // The bytes from one side to the other.
  struct Direction {
    explicit Direction(const asio::any_io_executor& executor) : news(executor), room(executor) {}
    std::deque<Packet> queue;
    size_t bytes = 0;   // number of bytes in the queue
    bool over = false;  // true if this side sends nothing more
    Bell news, room;
  };

  explicit Line(const std::shared_ptr<TcpSocket>& caller)
      : ends{caller, std::make_shared<TcpSocket>(caller->get_executor())},
        said{Direction(caller->get_executor()), Direction(caller->get_executor())} {}

  // Resets the connection on both sides.
  void reset() {
    error_code ignored;
    for (const auto& end : ends) {
      end->set_option(asio::socket_base::linger(true, 0), ignored);
      end->close(ignored);
    }
    ring();
  }
  void ring() {
    for (Direction& direction : said) {
      direction.news.ring();
      direction.room.ring();
    }
  }

  Route route;
  std::shared_ptr<TcpSocket> ends[2];
  Way way;
  bool held = false;
  Direction said[2];  // indexed by the sending side
};

Proxy::Proxy(asio::io_context& io, const Endpoint& where) : acceptor_(io, where, /*reuse_addr=*/true) {
  asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached);
}

Proxy::~Proxy() = default;

void Proxy::set(Between ranks, Way way) { add({ranks, way, State::kOpen}); }
void Proxy::cut(Between ranks) { add({ranks, {}, State::kCut}); }
void Proxy::hold(Between ranks) { add({ranks, {}, State::kHeld}); }

void Proxy::add(Rule rule) {
  rules_.push_back(rule);
  std::erase_if(lines_, [](const std::weak_ptr<Line>& line) { return line.expired(); });
  for (const std::weak_ptr<Line>& known : lines_) {
    const std::shared_ptr<Line> line = known.lock();
    if (line && rule.ranks.has(line->route)) apply(rule, *line);
  }
}

Proxy::Rule Proxy::rule_for(const Route& route) const {
  const auto fits = [&](const Rule& rule) { return rule.ranks.has(route); };
  const auto last = std::find_if(rules_.rbegin(), rules_.rend(), fits);
  return last == rules_.rend() ? Rule{{}, {}, State::kOpen} : *last;
}

void Proxy::apply(const Rule& rule, Line& line) {
  line.held = rule.state == State::kHeld;
  line.way = rule.way;
  if (rule.state == State::kCut) return line.reset();
  line.ring();
}

Task<> Proxy::accept_all() {
  while (true) {
    auto caller = std::make_shared<TcpSocket>(acceptor_.get_executor());
    co_await acceptor_.async_accept(*caller, use_awaitable);
    asio::co_spawn(acceptor_.get_executor(), join(std::move(caller)), asio::detached);
  }
}

Task<> Proxy::join(std::shared_ptr<TcpSocket> caller) {
  const auto line = std::make_shared<Line>(caller);
  error_code failed;
  co_await asio::async_read(*caller, asio::buffer(&line->route, sizeof(Route)),
                            asio::redirect_error(use_awaitable, failed));
  if (failed || line->route.magic != Route::kMagic) co_return;
  co_await line->ends[1]->async_connect(to_endpoint(line->route.to), asio::redirect_error(use_awaitable, failed));
  if (failed) co_return line->reset();
  for (const auto& end : line->ends) end->set_option(asio::ip::tcp::no_delay(true), failed);
  lines_.push_back(line);
  apply(rule_for(line->route), *line);
  for (int from : {0, 1}) {
    asio::co_spawn(caller->get_executor(), read(line, from), asio::detached);
    asio::co_spawn(caller->get_executor(), write(line, from), asio::detached);
  }
}

// Reads from one side.
Task<> Proxy::read(std::shared_ptr<Line> line, int from) {
  Line::Direction& said = line->said[from];
  error_code failed;
  while (true) {
    std::vector<char> bytes(kAtOnce);
    const size_t n =
        co_await line->ends[from]->async_read_some(asio::buffer(bytes), asio::redirect_error(use_awaitable, failed));
    if (failed) break;
    bytes.resize(n);
    said.bytes += n;
    said.queue.push_back({std::move(bytes), std::chrono::steady_clock::now() + line->way.delay});
    said.news.ring();
    while (said.bytes >= kOnTheWay && line->ends[from]->is_open()) co_await said.room.sleep();
  }
  if (failed != asio::error::eof && !line->held) co_return line->reset();
  said.over = true;
  said.news.ring();
}

// Writes each packet to the other side when its delay has passed.
Task<> Proxy::write(std::shared_ptr<Line> line, int from) {
  TcpSocket& to = *line->ends[1 - from];
  Line::Direction& said = line->said[from];
  Time free_at = Time::min();
  while (to.is_open()) {
    const Time now = std::chrono::steady_clock::now();
    if (line->held || said.queue.empty()) {
      if (!line->held && said.over) break;
      co_await said.news.sleep();
    } else if (const Time due = std::max(said.queue.front().arrives, free_at); now < due) {
      co_await said.news.sleep(due);
    } else {
      const Packet packet = std::move(said.queue.front());
      said.queue.pop_front();
      if (line->way.bytes_per_s > 0) {
        const std::chrono::duration<double> takes(static_cast<double>(packet.bytes.size()) / line->way.bytes_per_s);
        free_at = std::max(now, free_at) + std::chrono::duration_cast<Time::duration>(takes);
      }
      error_code failed;
      co_await asio::async_write(to, asio::buffer(packet.bytes), asio::redirect_error(use_awaitable, failed));
      said.bytes -= packet.bytes.size();
      said.room.ring();
      if (failed && !line->held) co_return line->reset();
    }
  }
  error_code gone;
  to.shutdown(asio::socket_base::shutdown_send, gone);
}

}  // namespace tessera::tcp
