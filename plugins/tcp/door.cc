#include "door.h"

#include <algorithm>

namespace tessera::tcp {
namespace {

using asio::use_awaitable;
using boost::system::error_code;

constexpr std::chrono::milliseconds kPatience{5000};  // time limit for the proof of a new connection
constexpr Mac kRefusal{};                             // sent in place of a proof, which is never all zeros
constexpr size_t kMaxInside = 256;                    // the most strangers that are examined at once
constexpr int kMaxLogged = 100;

// Thrown inside examine() if the caller is a stranger.
struct Stranger {
  const char* why;
};

}  // namespace

Address to_address(const Endpoint& endpoint) {
  Address address;
  address.port = endpoint.port();
  const asio::ip::address ip = endpoint.address();
  if (ip.is_v6() && !ip.to_v6().is_v4_mapped()) {
    address.v6 = 1;
    address.ip = ip.to_v6().to_bytes();
  } else {
    const asio::ip::address_v4 v4 =
        ip.is_v4() ? ip.to_v4() : asio::ip::make_address_v4(asio::ip::v4_mapped, ip.to_v6());
    const auto bytes = v4.to_bytes();
    std::copy(bytes.begin(), bytes.end(), address.ip.begin());
  }
  return address;
}

Endpoint to_endpoint(const Address& address) {
  if (address.v6 != 0) return {asio::ip::address_v6(address.ip), address.port};
  return {asio::ip::address_v4({address.ip[0], address.ip[1], address.ip[2], address.ip[3]}), address.port};
}

std::string to_text(const Endpoint& endpoint) {
  const std::string ip = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + ip + "]" : ip) + ":" + std::to_string(endpoint.port());
}

Cutoff::Cutoff(const std::shared_ptr<TcpSocket>& socket, std::chrono::milliseconds limit)
    : timer_(socket->get_executor(), limit) {
  timer_.async_wait([armed = armed_, socket](error_code error) {
    if (error || !*armed) return;
    error_code ignored;
    socket->close(ignored);
  });
}

Cutoff::~Cutoff() {
  *armed_ = false;
  timer_.cancel();
}

Door::Door(asio::io_context& io, DoorOptions options, const Endpoint& where)
    : options_(std::move(options)), acceptor_(io, where, /*reuse_addr=*/true) {}

void Door::open(Visit visit) {
  visit_ = std::move(visit);
  asio::co_spawn(acceptor_.get_executor(), accept_all(), asio::detached);
}

void Door::close() {
  error_code ignored;
  acceptor_.close(ignored);
}

void Door::refuse(const Endpoint& who, const std::string& why) {
  if (++refused_ > kMaxLogged) return;
  options_.host.log(TSR_LOG_WARNING, "tcp: " + options_.name + ": refused " + to_text(who) + ": " + why);
  if (refused_ == kMaxLogged) options_.host.log(TSR_LOG_WARNING, "tcp: further refusals are not logged");
}

Task<> Door::accept_all() {
  while (acceptor_.is_open()) {
    auto socket = std::make_shared<TcpSocket>(acceptor_.get_executor());
    Endpoint from;
    error_code error;
    co_await acceptor_.async_accept(*socket, from, asio::redirect_error(use_awaitable, error));
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    if (error) {  // there are no descriptors left, or the caller is gone; others may still come
      asio::steady_timer pause(acceptor_.get_executor(), std::chrono::milliseconds(20));
      co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
    } else if (options_.token.empty() && !from.address().is_loopback()) {
      refuse(from, "without TESSERA_JOB_TOKEN only loopback addresses are accepted");
    } else {
      if (inside_.size() >= kMaxInside + expected_) make_room();
      asio::co_spawn(acceptor_.get_executor(), examine(std::move(socket), from), asio::detached);
    }
  }
}

// Drops the oldest guest. It is the least likely to be a rank, because ranks prove themselves at once. A rank that is
// dropped nevertheless sees a reset and tries again.
void Door::make_room() {
  error_code ignored;
  TcpSocket& oldest = *inside_.front();
  oldest.set_option(asio::socket_base::linger(true, 0), ignored);
  oldest.close(ignored);
  inside_.pop_front();
}

// Reads the guest's hello and its proof that it knows the token. Returns this side's proof.
Task<Mac> Door::proof_of(std::shared_ptr<TcpSocket> socket, Hello& hello) {
  const Cutoff cutoff(socket, kPatience);
  co_await asio::async_read(*socket, asio::buffer(&hello, sizeof(hello)), use_awaitable);
  if (hello.magic != kHelloMagic) throw Stranger{"it does not speak this protocol"};
  const Nonce challenge = random_nonce();
  co_await asio::async_write(*socket, asio::buffer(challenge), use_awaitable);
  Mac its;
  co_await asio::async_read(*socket, asio::buffer(its), use_awaitable);
  const Address here = to_address(socket->local_endpoint());
  if (!equal(its, proof(options_.token, Role::kCaller, hello, here, challenge))) {
    error_code ignored;
    co_await asio::async_write(*socket, asio::buffer(kRefusal), asio::redirect_error(use_awaitable, ignored));
    throw Stranger{"it has another token"};
  }
  co_return proof(options_.token, Role::kCalled, hello, here, challenge);
}

Task<> Door::examine(std::shared_ptr<TcpSocket> socket, Endpoint from) {
  inside_.push_back(socket);
  std::string problem;
  Hello hello;
  try {
    const Mac mine = co_await proof_of(socket, hello);
    // The guest is admitted now, so the door must not close this connection to make room: the guest considers itself
    // admitted as soon as it has this side's proof. These few bytes fit into a new connection's buffer.
    inside_.remove(socket);
    co_await asio::async_write(*socket, asio::buffer(mine), use_awaitable);
  } catch (const Stranger& stranger) {
    problem = stranger.why;
  } catch (const boost::system::system_error& e) {
    problem = socket->is_open() ? "it left before it proved itself (" + e.code().message() + ")"
                                : "it did not prove itself in time, or before others came";
  } catch (const std::exception& e) {
    problem = e.what();
  }
  inside_.remove(socket);
  if (problem.empty() && !socket->is_open()) problem = "it was shown out as it proved itself";
  if (!problem.empty()) {
    refuse(from, problem);
  } else if (hello.rank < 0 || hello.rank >= kMaxRanks || hello.port < 0 || hello.port > 65535) {
    refuse(from, "its hello has impossible numbers");
  } else {
    visit_(std::move(socket), hello);
  }
}

Task<> call(TcpSocket& socket, Route route, Proxied proxied) {
  co_await socket.async_connect(to_endpoint(proxied ? *proxied : route.to), use_awaitable);
  if (proxied) co_await asio::async_write(socket, asio::buffer(&route, sizeof(route)), use_awaitable);
}

Task<> knock(TcpSocket& socket, std::string token, Hello hello, Address called, std::function<void()> proving) {
  hello.nonce = random_nonce();
  co_await asio::async_write(socket, asio::buffer(&hello, sizeof(hello)), use_awaitable);
  Nonce challenge;
  co_await asio::async_read(socket, asio::buffer(challenge), use_awaitable);
  const Mac mine = proof(token, Role::kCaller, hello, called, challenge);
  if (proving) proving();
  co_await asio::async_write(socket, asio::buffer(mine), use_awaitable);
  Mac its{};
  // If the other side dies here, or drops this guest, the connection ends without a message, and a retry may succeed.
  co_await asio::async_read(socket, asio::buffer(its), use_awaitable);
  if (its == kRefusal) {
    sdk::fail(TSR_PERMISSION_DENIED, "tcp: rank ", hello.target, " refused rank ", hello.rank,
              ": is TESSERA_JOB_TOKEN the same on both?");
  }
  if (!equal(its, proof(token, Role::kCalled, hello, called, challenge))) {
    sdk::fail(TSR_PERMISSION_DENIED, "tcp: the process that answers for rank ", hello.target,
              " does not know this job's token");
  }
}

}  // namespace tessera::tcp
