// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/pair_link.h - the link that sdk/pair_engine.h turns into a transport.
//
// A Link is one rank's end of the connection to one other: a reliable, ordered stream of bytes in each direction, and
// notices, which overtake it. It moves bytes, and tells if the other end is gone. It knows nothing of operations.
//
//   class Link : public PairLink {
//     static constexpr const char* kName;  // of the transport; messages begin with it
//
//     // Sends bytes in the order of the pieces, at most three. Never waits. Returns their number, or -1 and errno:
//     // EAGAIN if none can go now, anything else if the other is gone. `for_it_alone`: the piece that goes only to
//     // this rank; null: none. Data that were sent may be changed after settled().
//     ssize_t send(iovec* pieces, size_t count, const iovec* for_it_alone);
//     // Receives in the same way; 0: the other end has closed. EBADMSG: the data are not valid.
//     ssize_t receive(iovec* pieces, size_t count);
//
//     // Called before a rank sleeps until one of `wants` (bits of Wake) comes. Says where to poll(), and for what.
//     // False: it is there already, or will never come.
//     bool sleeps(uint32_t wants, pollfd* where);
//
//     NoticeSocket& notices();              // or a type with the same three functions
//     const NoticeSocket& notices() const;  // [any-thread] for tell()
//   };
//
// Links are movable. One thread at a time uses them, except for renounce() and notices().tell().
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tessera/sdk/fd.h"
#include "tessera/sdk/pair_failures.h"

namespace tessera::sdk {
inline namespace v1 {

struct Wake {
  static constexpr uint32_t kData = 1, kRoom = 2, kSettled = 4;
};

// The result of reading notices.
struct Heard {
  enum What { kNothing, kNotice, kEnd } what = kNothing;
  int error = 0;  // for kEnd: an errno; 0: the other side has closed
};

// Notices over a connected stream socket that carries nothing else. The user owns the descriptor.
class NoticeSocket {
 public:
  explicit NoticeSocket(int socket = -1) : socket_(socket) {}

  int descriptor() const { return socket_; }  // readable when there is a notice
  // Best effort, without waiting. A socket that carries a few notices in its life is never full.
  void tell(const Notice& notice) const noexcept {
    [[maybe_unused]] const ssize_t told = ::send(socket_, &notice, sizeof(notice), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  Heard hear(Notice* notice) {
    const ssize_t n = ::recv(socket_, reinterpret_cast<char*>(&partial_) + got_, sizeof(partial_) - got_, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (n <= 0) return {Heard::kEnd, n < 0 ? errno : 0};
    got_ += static_cast<size_t>(n);
    if (got_ < sizeof(partial_)) return {};
    got_ = 0;
    *notice = partial_;
    return {Heard::kNotice, 0};
  }

 private:
  int socket_;
  Notice partial_;
  size_t got_ = 0;
};

// Defaults for most links. A link may have its own functions instead.
struct PairLink {
  // Bytes: an all_reduce up to this size is sent whole to every rank, and each rank reduces it.
  static constexpr size_t kExchangedWhole = size_t{16} << 10;
  // Copies data that a rank sends to itself, if they are 8 MiB or more.
  static void copy_much(char* to, const char* from, size_t bytes) { std::memcpy(to, from, bytes); }

  // True if the memory of sent data may be reused. A link that copies data may say so at once.
  bool settled() const { return true; }
  // [any-thread] From now on lent data may change, settled or not: the other side must not use them.
  void renounce() const noexcept {}
  // True if it is known, without a call, that the other side has closed.
  bool ended() const { return false; }
  // Called after a sleep; true: there was something to read where sleeps() said.
  void wake(bool) {}
  // True if the other machine has not acknowledged the last notice.
  bool unacknowledged() const { return false; }
};

// A link over two connected stream sockets: data, and notices. `class Link : public SocketLink` adds kName.
class SocketLink : public PairLink {
 public:
  SocketLink() = default;
  SocketLink(Fd data, Fd notices) : data_(std::move(data)), told_(std::move(notices)), notices_(told_.get()) {}

  ssize_t send(iovec* pieces, size_t count, const iovec*) {
    const msghdr message = message_of(pieces, count);
    return ::sendmsg(data_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t receive(iovec* pieces, size_t count) {
    msghdr message = message_of(pieces, count);
    return ::recvmsg(data_.get(), &message, MSG_DONTWAIT);
  }
  bool sleeps(uint32_t wants, pollfd* where) {
    const int events = ((wants & Wake::kRoom) != 0 ? POLLOUT : 0) | ((wants & Wake::kData) != 0 ? POLLIN : 0);
    *where = {data_.get(), static_cast<short>(events), 0};
    return true;
  }
  NoticeSocket& notices() { return notices_; }
  const NoticeSocket& notices() const { return notices_; }

 private:
  static msghdr message_of(iovec* pieces, size_t count) {
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    return message;
  }
  Fd data_, told_;
  NoticeSocket notices_;
};

template <class L>
concept IsPairLink = std::derived_from<L, PairLink> && std::movable<L> &&
    requires(L link, iovec* pieces, pollfd* where, Notice* notice) {
  { L::kName } -> std::convertible_to<const char*>;
  { link.send(pieces, size_t{1}, pieces) } -> std::same_as<ssize_t>;
  { link.receive(pieces, size_t{1}) } -> std::same_as<ssize_t>;
  { link.sleeps(uint32_t{1}, where) } -> std::same_as<bool>;
  { link.notices().hear(notice) } -> std::same_as<Heard>;
  { link.notices().descriptor() } -> std::same_as<int>;
  link.notices().tell(*notice);
};

}  // namespace v1
}  // namespace tessera::sdk
