#include "channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tessera::tcp {
namespace {

// Of one call: large enough to be cheap, small enough that sending and receiving take turns. What is copied into memory
// lies in this processor's cache until the other copies it out; those copies keep each other busy with less.
constexpr size_t kSocketSlice = size_t{256} << 10;
constexpr size_t kMemorySlice = size_t{32} << 10;

// Cuts the pieces so that they have `most` bytes together.
size_t cut(iovec* pieces, size_t count, size_t most) {
  size_t kept = 0;
  for (; kept < count && most > 0; ++kept) {
    pieces[kept].iov_len = std::min(pieces[kept].iov_len, most);
    most -= pieces[kept].iov_len;
  }
  return kept;
}

msghdr message_of(iovec* pieces, size_t count) {
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = cut(pieces, count, kSocketSlice);
  return message;
}

}  // namespace

Channel::Channel(Link link, SharedMemory memory, bool lower) : link_(std::move(link)), memory_(std::move(memory)) {
  if (!memory_) return;
  writer_ = memory_.writer(lower);
  reader_ = memory_.reader(lower);
  mine_ = &memory_.state().sleeps[lower ? 0 : 1];
  its_ = &memory_.state().sleeps[lower ? 1 : 0];
}

ssize_t Channel::send(iovec* pieces, size_t count) {
  if (!memory_) {
    const msghdr message = message_of(pieces, count);
    return sendmsg(data(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (ended_) {
    errno = EPIPE;
    return -1;
  }
  return moved(writer_.write(pieces, cut(pieces, count, kMemorySlice)), Wake::kData);
}

ssize_t Channel::receive(iovec* pieces, size_t count) {
  if (!memory_) {
    msghdr message = message_of(pieces, count);
    return recvmsg(data(), &message, MSG_DONTWAIT);
  }
  const ssize_t n = moved(reader_.read(pieces, cut(pieces, count, kMemorySlice)), Wake::kRoom);
  return n < 0 && errno == EAGAIN && ended_ ? 0 : n;
}

// Tells the other side, where it sleeps until this happens. The counter was stored before this looks, and a sleeper
// says so before it looks at the counter: one of them sees the other.
ssize_t Channel::moved(size_t bytes, uint32_t what) {
  if (bytes == 0 || bytes == kRingDamaged) {
    errno = bytes == 0 ? EAGAIN : EBADMSG;
    return -1;
  }
  if ((its_->wants.load() & what) != 0) {
    its_->wants.store(0);
    // A full socket has rung already; one whose other end is gone needs no bell.
    const char ring = 0;
    [[maybe_unused]] const ssize_t rung = ::send(data(), &ring, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  return static_cast<ssize_t>(bytes);
}

bool Channel::sleeps(bool to_send, bool to_receive) {
  mine_->wants.store((to_send ? Wake::kRoom : 0) | (to_receive ? Wake::kData : 0));
  if ((to_send && (ended_ || writer_.room() > 0)) || (to_receive && (ended_ || reader_.available() > 0))) {
    mine_->wants.store(0, std::memory_order_relaxed);
    return false;
  }
  return true;
}

// What is not read now wakes the next sleep.
void Channel::wake(bool rung) {
  mine_->wants.store(0, std::memory_order_relaxed);
  if (!rung) return;
  char rings[64];
  const ssize_t n = recv(data(), rings, sizeof(rings), MSG_DONTWAIT);
  ended_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace tessera::tcp
