// A client that sees every byte: one socket, requests as written, parsed responses.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace tessera::serve {

struct Reply {
  int status = 0;                              // 0: the connection ended before a response; -1: within one
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

class Client {
 public:
  explicit Client(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  // Returns false if the other side no longer listens.
  bool send(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::send(fd_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  static std::string post(const std::string& target, const std::string& body, const std::string& headers = "") {
    return "POST " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "Content-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body;
  }
  static std::string get(const std::string& target, const std::string& headers = "") {
    return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n";
  }

  Reply read(bool has_body = true) {
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!more()) return {buffer_.empty() ? 0 : -1, {}, {}};
    }
    Reply reply = head(buffer_.substr(0, end));
    buffer_.erase(0, end + 4);
    const size_t length = has_body ? static_cast<size_t>(std::atoll(reply.headers["content-length"].c_str())) : 0;
    while (buffer_.size() < length) {
      if (!more()) return {-1, {}, {}};
    }
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return reply;
  }
  Reply ask(const std::string& request) {
    if (!send(request)) return {};
    return read();
  }
  // True if the other side closes without another byte, within 20 s.
  bool is_closed() {
    char byte;
    return buffer_.empty() && recv(fd_, &byte, 1, 0) == 0;
  }

 private:
  bool more() {
    char bytes[65536];
    const ssize_t n = recv(fd_, bytes, sizeof(bytes), 0);
    if (n > 0) buffer_.append(bytes, static_cast<size_t>(n));
    return n > 0;
  }
  static Reply head(const std::string& text) {
    Reply out{.status = std::atoi(text.substr(text.find(' ') + 1).c_str())};
    for (size_t at = text.find("\r\n"); at != std::string::npos;) {
      const size_t begin = at + 2, end = text.find("\r\n", begin), colon = text.find(':', begin);
      std::string name = text.substr(begin, colon - begin);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      out.headers[name] = text.substr(colon + 2, end == std::string::npos ? end : end - colon - 2);
      at = end;
    }
    return out;
  }

  int fd_;
  bool connected_ = false;
  std::string buffer_;
};

}  // namespace tessera::serve
