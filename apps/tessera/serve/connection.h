// One connection: its requests one after the other, within limits of size and time.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "serve/server.h"

namespace boost::asio::ssl {
class context;
}

namespace tessera::serve {

class Connection;

// What the connections of a server share.
struct Shared {
  const ServerOptions& options;
  Metrics& metrics;
  Log& log;
  Handler* handler = nullptr;
  boost::asio::ssl::context* tls = nullptr;  // nullptr: plain
  std::atomic<bool> ending{false};
  std::atomic<size_t> body_bytes{0};  // of requests under way
  std::mutex mutex;
  std::unordered_set<Connection*> open;
};

class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // `crowded`: there are too many connections, this one is only told so.
  virtual void start(bool crowded) = 0;
  // [any-thread] The server ends: the request under way is the last one, an idle connection closes soon.
  virtual void end_soon() = 0;

 protected:
  explicit Connection(Shared& shared);
  // Of the final class's destructor: end_soon() must not be called on what is half gone.
  void leave();
  Shared& shared_;
};

// It lives as long as it has something to do.
std::shared_ptr<Connection> make_connection(boost::asio::ip::tcp::socket socket, Shared& shared);

}  // namespace tessera::serve
