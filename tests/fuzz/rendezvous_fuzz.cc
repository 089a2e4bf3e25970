// The rendezvous' frames. The first byte selects the listener (the door of rank 0, or a rank that has come there), and
// whether the sender knows the (empty) token. The rest is sent.
#include "rendezvous.h"

#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "door.h"
#include "fuzz.h"
#include "tcp.h"
#include "tessera/sdk/error.h"

namespace tessera::fuzz {
namespace {

using namespace tessera::tcp;
using std::chrono::milliseconds;

constexpr int32_t kWorld = 3;

void require_printable(const char* text) {
  for (; *text != '\0'; ++text)
    require(static_cast<unsigned char>(*text) >= 0x20 && *text != 0x7f, "what a stranger says is printable");
}

// A host that checks what is logged.
sdk::Host host() {
  static const tsr_host kHost = [] {
    tsr_host raw{};
    raw.struct_size = sizeof(raw);
    raw.log = [](const tsr_host*, int32_t, const char* text) { require_printable(text); };
    return raw;
  }();
  return sdk::Host(&kHost);
}

void send_all(int fd, Input bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}
template <class T>
bool hear(int fd, T& out) {
  return ::recv(fd, &out, sizeof(out), MSG_WAITALL) == static_cast<ssize_t>(sizeof(out));
}
template <class T>
Input bytes_of(const T& value) {
  return {reinterpret_cast<const uint8_t*>(&value), sizeof(value)};
}

// Calls at a door, in a thread: sends `words`, or a hello that begins with them and its proof.
void call_at(const Endpoint& door, bool knows, Input words) {
  asio::io_context io;
  TcpSocket socket(io);
  socket.connect(door);
  const int fd = socket.native_handle();
  if (knows) {
    Taker taker(words);
    Hello hello = taker.take<Hello>();
    hello.magic = kHelloMagic;
    send_all(fd, bytes_of(hello));
    Nonce challenge;
    if (!hear(fd, challenge)) return;
    send_all(fd, bytes_of(proof("", Role::kCaller, hello, to_address(door), challenge)));
    words = taker.rest();
  }
  send_all(fd, words);
  ::shutdown(fd, SHUT_WR);
  char rest[256];
  while (::recv(fd, rest, sizeof(rest), 0) > 0) {
  }
}

void knock_at_the_door(bool knows, Input words) {
  asio::io_context io;
  Door door(io, {host(), "", "fuzz"}, {asio::ip::address_v4::loopback(), 0});
  door.open([](const std::shared_ptr<TcpSocket>&, const Hello& hello) {
    require(hello.rank >= 0 && hello.rank < kMaxRanks, "a visitor's rank can be");
    require(hello.port >= 0 && hello.port <= 65535, "a visitor's port can be");
  });
  std::thread caller([&, where = door.endpoint()] {
    call_at(where, knows, words);
    asio::post(io, [&] { door.close(); });
  });
  io.run_for(std::chrono::seconds(20));
  caller.join();
}

// Rank 0, as the input plays it.
void receive_a_guest(int listener, bool knows, Input words) {
  const Fd fd(accept(listener, nullptr, nullptr));
  if (!fd) return;
  if (knows) {
    Hello hello;
    Nonce challenge{};
    Mac mac;
    sockaddr_in here{};
    socklen_t size = sizeof(here);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &size);
    const Endpoint called(asio::ip::address_v4(ntohl(here.sin_addr.s_addr)), ntohs(here.sin_port));
    if (!hear(fd.get(), hello)) return;
    send_all(fd.get(), bytes_of(challenge));
    if (!hear(fd.get(), mac)) return;
    send_all(fd.get(), bytes_of(proof("", Role::kCalled, hello, to_address(called), challenge)));
  }
  send_all(fd.get(), words);
}

void come_to_rank_0(bool knows, Input words) {
  asio::io_context io;
  asio::ip::tcp::acceptor listener(io, {asio::ip::address_v4::loopback(), 0});
  listener.non_blocking(false);
  std::thread rank_0([&, fd = listener.native_handle()] { receive_a_guest(fd, knows, words); });
  const double seconds = knows ? 5 : 0.02;
  RendezvousOptions options{
      .host = host(),
      .rank = 1,
      .world_size = kWorld,
      .master_addr = "127.0.0.1",
      .master_port = listener.local_endpoint().port(),
      .token = "",
      .timeout_s = seconds,
      .deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)),
      .listen = [](const Address&) { return uint16_t{1}; }};
  try {
    const Meeting meeting = meet(options);
    require(meeting.addresses.size() == kWorld, "a meeting has an address for each rank");
    for (const Address& address : meeting.addresses) require(!to_text(to_endpoint(address)).empty(), "an address");
    require(hosts_of(meeting.addresses).size() == kWorld, "each rank has a host");
  } catch (const sdk::Failure& failure) {
    require(failure.code() != TSR_OK && *failure.what() != '\0', "a refusal has a code and a sentence");
    require_printable(failure.what());
  }
  ::shutdown(listener.native_handle(), SHUT_RDWR);  // on a busy machine, its deadline passes before anybody comes
  rank_0.join();
}

}  // namespace

void fuzz_rendezvous(Input input) {
  if (input.empty()) return;
  const bool knows = (input[0] & 2) != 0;
  const Input words = input.subspan(1);
  if ((input[0] & 1) != 0)
    come_to_rank_0(knows, words);
  else
    knock_at_the_door(knows, words);
}

}  // namespace tessera::fuzz
