// Data on a live connection of `tessera serve`: the server answers in HTTP or closes, and an honest client is answered
// meanwhile. Lines "---" divide an input into the pieces to send.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "fuzz.h"
#include "running_server.h"

namespace tessera::fuzz {
namespace {

using serve::Client;
using serve::RunningServer;
using std::chrono::milliseconds;

class Connection {
 public:
  explicit Connection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "the server listens");
  }
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Returns false if nobody listens any more.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Sends nothing more; returns everything the other side sends.
  std::string hear_out() {
    shutdown(fd_, SHUT_WR);
    std::string heard;
    char bytes[4096];
    pollfd ready{fd_, POLLIN, 0};
    while (true) {
      int n_ready = 0;
      do n_ready = poll(&ready, 1, 20000);
      while (n_ready < 0 && errno == EINTR);  // libFuzzer's own alarm
      require(n_ready == 1, "a connection whose client has finished is closed");
      const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
      if (n <= 0) return heard;
      heard.append(bytes, static_cast<size_t>(n));
    }
  }

 private:
  int fd_;
};

}  // namespace

void fuzz_http(Input input) {
  constexpr std::string_view kMark = "\n---\n";
  static RunningServer server({.server = {.max_connections = 64,
                                          .max_body = 1 << 16,
                                          .max_header = 2000,
                                          .max_fields = 20,
                                          .read_timeout = milliseconds(200),
                                          .write_timeout = milliseconds(200),
                                          .idle_timeout = milliseconds(200)}});
  static uint64_t count = 0;
  Connection connection(server.port());
  std::string_view left = text_of(input);
  for (bool listens = true; listens && !left.empty();) {
    const size_t end = std::min(left.find(kMark), left.size());
    listens = connection.send(left.substr(0, end));
    left.remove_prefix(std::min(left.size(), end + kMark.size()));
  }
  const std::string heard = connection.hear_out();
  const bool http = heard.starts_with("HTTP/1.1 ") || heard.starts_with("HTTP/1.0 ");  // the version of the request
  require(heard.empty() || http, "what the server says is HTTP");
  if (count++ % 16 != 0) return;
  const int status = Client(server.port()).ask(Client::get("/v2/health/ready")).status;
  require(status == 200, "an honest client is answered");
}

}  // namespace tessera::fuzz
