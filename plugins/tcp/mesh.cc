#include "mesh.h"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <exception>
#include <optional>

#include "door.h"
#include "tcp.h"
#include "tessera/sdk/pair_failures.h"

namespace tessera::tcp {
namespace {

using asio::use_awaitable;
using boost::system::error_code;
using std::chrono::milliseconds;
using SocketPtr = std::shared_ptr<TcpSocket>;

// Bytes of the send buffer between two ranks of one machine: large enough that the sender need not wait for the
// receiver's turn, small enough that data on its way stays in the cache. By default the kernel queues megabytes, which
// takes twice the time (docs/tcp.md). The kernel doubles the value for its own bookkeeping.
constexpr int kLoopbackSendBuffer = 256 << 10;

bool stays_on_this_machine(const TcpSocket& socket) {
  error_code gone;
  const Endpoint here = socket.local_endpoint(gone);
  if (gone) return false;
  const Endpoint there = socket.remote_endpoint(gone);
  return !gone && hosts_of({to_address(here), to_address(there)})[1] == 0;
}

// Releases the descriptor to the engine, with options set: data is sent at once, and a vanished machine is noticed when
// sent data stays unacknowledged for the group's timeout.
Fd take(TcpSocket& socket, double timeout_s) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  const int patience = static_cast<int>(std::min(timeout_s * 1000, 1e9));
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &patience, sizeof(patience));
  if (stays_on_this_machine(socket))
    setsockopt(socket.native_handle(), SOL_SOCKET, SO_SNDBUF, &kLoopbackSendBuffer, sizeof(kLoopbackSendBuffer));
  const int fd = socket.release();
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Fd(fd);
}

}  // namespace

struct MeshBuilder::Impl {
  Impl(sdk::Host host, std::string token_, const Address& own)
      : token(std::move(token_)), door(io, DoorOptions{host, token, "mesh"}, to_endpoint(own)) {}

  int32_t world_size() const { return static_cast<int32_t>(options->members.addresses.size()); }

  int32_t name(int32_t rank) const { return options->members.names[static_cast<size_t>(rank)]; }

  // Handles a higher rank that has knocked.
  void visit(const SocketPtr& socket, const Hello& hello) {
    error_code gone;
    const Endpoint from = socket->remote_endpoint(gone);
    const bool learns = hello.purpose == Purpose::kAddresses && teacher_of(hello.rank) == options->rank;
    const bool fits = hello.group == options->group && hello.target == options->rank &&
                      hello.world_size == world_size() && hello.rank > options->rank && hello.rank < world_size() &&
                      (learns || hello.purpose == Purpose::kData || hello.purpose == Purpose::kControl);
    if (gone || !fits) return door.refuse(from, "it is not a rank of this group");
    if (learns) return asio::co_spawn(io, teach(socket), asio::detached);
    keep(hello.rank, hello.purpose, *socket);
  }

  void keep(int32_t rank, Purpose purpose, TcpSocket& socket) {
    Fd& place = purpose == Purpose::kData ? links[rank].data : links[rank].control;
    const bool again = static_cast<bool>(place);  // the caller gave up an earlier call
    place = take(socket, options->timeout_s);
    if (!again && --missing == 0) io.stop();
  }

  // Sends everybody's address. A rank that did not get all of it calls again; a rank that got it connects.
  Task<> teach(SocketPtr socket) {
    error_code gone;
    const std::vector<Address>& all = options->members.addresses;
    co_await asio::async_write(*socket, asio::buffer(all.data(), all.size() * sizeof(Address)),
                               asio::redirect_error(use_awaitable, gone));
  }

  Task<> learn(Hello hello, Address where) {
    while (true) {
      auto socket = std::make_shared<TcpSocket>(io);
      if (co_await reach(socket, hello, where, hello.rank, hello.target)) {
        error_code gone;
        co_await asio::async_read(*socket, asio::buffer(learnt.data(), learnt.size() * sizeof(Address)),
                                  asio::redirect_error(use_awaitable, gone));
        if (!gone) break;
      }
      asio::steady_timer pause(io, milliseconds(50));
      co_await pause.async_wait(use_awaitable);
    }
    missing = 0;
    io.stop();
  }

  // Calls a lower rank, which already listens; retries after failures until the deadline.
  Task<> call(int32_t rank, Purpose purpose) {
    Hello hello{
        .group = options->group, .purpose = purpose, .rank = options->rank, .target = rank, .world_size = world_size()};
    while (true) {
      auto socket = std::make_shared<TcpSocket>(io);
      const Address& where = options->members.addresses[static_cast<size_t>(rank)];
      if (co_await reach(socket, hello, where, name(hello.rank), name(rank))) co_return keep(rank, purpose, *socket);
      asio::steady_timer pause(io, milliseconds(50));
      co_await pause.async_wait(use_awaitable);
    }
  }

  Task<bool> reach(SocketPtr socket, Hello hello, Address where, int32_t caller, int32_t called) {
    std::optional<Cutoff> cutoff(std::in_place, socket, kCallFor);
    try {
      Route route{.to = where, .caller = caller, .called = called};
      co_await tcp::call(*socket, route, options->proxied);
      co_await knock(*socket, token, hello, route.to, [&] { cutoff.emplace(socket, kProveFor); });
      co_return socket->is_open();  // false if the cutoff has just closed it
    } catch (const boost::system::system_error&) {
      co_return false;
    }
  }

  void spawn(Task<> task) {
    asio::co_spawn(io, std::move(task), [this](const std::exception_ptr& e) {
      if (!e) return;
      error = e;
      io.stop();
    });
  }

  void run() {
    io.restart();
    io.run_until(options->deadline);
    if (error) std::rethrow_exception(error);
  }

  std::vector<Address> learn(int32_t world, const Address& where) {
    Hello hello{.group = options->group, .purpose = Purpose::kAddresses, .rank = options->rank};
    hello.target = teacher_of(hello.rank);
    hello.world_size = world;
    learnt.resize(static_cast<size_t>(world));
    missing = 1;
    spawn(learn(hello, where));
    run();
    if (missing == 0) return std::move(learnt);
    const std::string teacher = "rank " + std::to_string(hello.target);
    throw sdk::Failure(TSR_DEADLINE_EXCEEDED,
                       "tcp: " + teacher + " did not tell rank " + std::to_string(hello.rank) +
                           " the ranks' addresses within " + sdk::seconds_text(options->timeout_s),
                       hello.target);
  }

  std::vector<Link> connect() {
    links = std::vector<Link>(options->members.addresses.size());
    missing = 2 * (world_size() - 1);
    if (missing == 0) return std::move(links);
    door.expect(static_cast<size_t>(missing));
    door.open([this](const SocketPtr& socket, const Hello& hello) { visit(socket, hello); });
    for (int32_t rank = 0; rank < options->rank; ++rank) {
      for (Purpose purpose : {Purpose::kData, Purpose::kControl}) spawn(call(rank, purpose));
    }
    run();
    if (missing > 0) throw_missing();
    return std::move(links);
  }

  [[noreturn]] void throw_missing() const {
    std::vector<int32_t> ranks;
    for (int32_t rank = 0; rank < world_size(); ++rank) {
      if (rank != options->rank && (!links[rank].data || !links[rank].control)) ranks.push_back(name(rank));
    }
    throw sdk::Failure(TSR_DEADLINE_EXCEEDED,
                       "tcp: " + sdk::rank_list(ranks) + " did not connect to rank " +
                           std::to_string(name(options->rank)) + " within " + sdk::seconds_text(options->timeout_s),
                       sdk::first_of(ranks));
  }

  std::string token;
  asio::io_context io{1};
  Door door;
  const MeshOptions* options = nullptr;
  std::vector<Link> links;
  int missing = 0;              // number of connections
  std::vector<Address> learnt;  // addresses from the teacher, by rank
  std::exception_ptr error;
};

MeshBuilder::MeshBuilder(sdk::Host host, std::string token, const Address& own) {
  Address any_port = own;
  any_port.port = 0;
  try {
    impl_ = std::make_unique<Impl>(host, std::move(token), any_port);
  } catch (const boost::system::system_error& e) {
    sdk::fail(TSR_UNAVAILABLE, "tcp: cannot listen at ", to_text(to_endpoint(own)), ": ", e.code().message());
  }
}

MeshBuilder::~MeshBuilder() = default;

Address MeshBuilder::address() const { return to_address(impl_->door.endpoint()); }

std::vector<Address> MeshBuilder::learn(const MeshOptions& options, int32_t world_size, const Address& where) {
  impl_->options = &options;
  return impl_->learn(world_size, where);
}

std::vector<Link> MeshBuilder::connect(const MeshOptions& options) {
  impl_->options = &options;
  return impl_->connect();
}

}  // namespace tessera::tcp
