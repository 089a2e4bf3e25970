// One connection: handles its requests one after the other, within limits of size and time.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "serve/request_body.h"
#include "serve/server.h"

namespace boost::asio::ssl {
class context;
}

namespace tessera::serve {

class Connection;

// State that all connections of a server share.
struct Shared {
  Shared(const ServerOptions& o, Metrics& m, Log& l)
      : options(o), metrics(m), log(l), bodies(o.max_bodies, o.max_connections) {}

  const ServerOptions& options;
  Metrics& metrics;
  Log& log;
  RequestHandler* handler = nullptr;
  boost::asio::thread_pool* parsers = nullptr;  // parses large requests, which would otherwise delay small ones
  boost::asio::ssl::context* tls = nullptr;     // nullptr: no TLS
  std::atomic<bool> ending{false};
  BodyPool bodies;  // bodies of requests under way
  std::mutex mutex;
  std::unordered_set<Connection*> open;

  size_t connections();  // [any-thread]
  // [any-thread] Calls end_soon() of every connection.
  void end_all();
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  virtual ~Connection();  // takes Shared's mutex, so no reference may be dropped while holding it
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // `crowded`: there are too many connections, and this one is only told so.
  virtual void start(bool crowded) = 0;
  // [any-thread] The server ends: the request under way is the last one, and an idle connection closes soon.
  virtual void end_soon() = 0;

 protected:
  explicit Connection(Shared& shared);
  Shared& shared_;
};

// The connection lives as long as it has something to do.
std::shared_ptr<Connection> make_connection(boost::asio::ip::tcp::socket socket, Shared& shared);

}  // namespace tessera::serve
