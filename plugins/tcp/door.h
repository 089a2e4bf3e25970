// Authenticates connections: one side listens with a Door, the other knocks; both prove that they know the token.
//
// The caller sends a Hello; the door answers with a nonce; the caller proves that it knows the token; only then does
// the door. A door limits how long a guest may take, reads nothing of variable length, and drops the oldest stranger
// when it is crowded. Garbage, port scans and slow senders therefore cost only a log line. Data on an admitted
// connection is neither encrypted nor signed (docs/tcp.md).
#pragma once

#include <boost/asio.hpp>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "address.h"
#include "tessera/sdk/host.h"
#include "wire.h"

namespace tessera::tcp {

namespace asio = boost::asio;
using TcpSocket = asio::ip::tcp::socket;
using Endpoint = asio::ip::tcp::endpoint;
template <class T = void>
using Task = asio::awaitable<T>;

Address to_address(const Endpoint& endpoint);
Endpoint to_endpoint(const Address& address);
std::string to_text(const Endpoint& endpoint);  // "127.0.0.1:29500"

// Closes the socket when `limit` has passed, which ends anything that waits for it, unless this object is destroyed
// first.
class Cutoff {
 public:
  Cutoff(const std::shared_ptr<TcpSocket>& socket, std::chrono::milliseconds limit);
  ~Cutoff();
  Cutoff(const Cutoff&) = delete;
  Cutoff& operator=(const Cutoff&) = delete;

 private:
  std::shared_ptr<bool> armed_ = std::make_shared<bool>(true);
  asio::steady_timer timer_;
};

struct DoorOptions {
  sdk::Host host;
  std::string token;  // empty: only loopback addresses are admitted
  std::string name;   // of the service behind the door, for the log: "rendezvous"
};

class Door {
 public:
  using Visit = std::function<void(std::shared_ptr<TcpSocket>, const Hello&)>;

  // Listens at `where`; port 0 means any. Throws boost::system::system_error.
  Door(asio::io_context& io, DoorOptions options, const Endpoint& where);
  Endpoint endpoint() const { return acceptor_.local_endpoint(); }
  // Calls `visit`, from the io_context, for everyone who knows the token. The door must outlive the io_context's run.
  void open(Visit visit);
  // Guests that are expected may be examined in addition to kMaxInside strangers.
  void expect(size_t guests) { expected_ = guests; }
  void close();
  void refuse(const Endpoint& who, const std::string& why);  // logs; the caller drops the connection

 private:
  Task<> accept_all();
  void make_room();
  Task<Mac> proof_of(std::shared_ptr<TcpSocket> socket, Hello& hello);
  Task<> examine(std::shared_ptr<TcpSocket> socket, Endpoint from);

  DoorOptions options_;
  asio::ip::tcp::acceptor acceptor_;
  Visit visit_;
  std::list<std::shared_ptr<TcpSocket>> inside_;  // being examined, oldest first
  size_t expected_ = 0;
  int refused_ = 0;  // number of guests refused so far
};

// The caller's side: connects directly or through a proxy, as `proxied` says. Throws boost::system::system_error.
Task<> call(TcpSocket& socket, Route route, Proxied proxied);
// Proves itself to the listener at `called`, after call(). Throws Failure(TSR_PERMISSION_DENIED) if the other side does
// not accept the token or does not know it, and boost::system::system_error if it does not answer. Calls `proving`
// before it sends its proof: after that the other side may admit it, so it should not give up soon.
Task<> knock(TcpSocket& socket, std::string token, Hello hello, Address called, std::function<void()> proving = {});

// How long a caller waits for an answer, and for the answer to its proof. The second limit is longer: the answer is
// slow if there are many more ranks than processors, and a caller that gives up then leaves the other side with a dead
// connection.
inline constexpr std::chrono::milliseconds kCallFor{5000}, kProveFor{60000};

}  // namespace tessera::tcp
