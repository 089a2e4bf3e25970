#include "channel.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tessera::tcp {
namespace {

// The most bytes per call: large enough to be cheap, small enough that sending and receiving take turns. Data copied to
// shared memory is in this processor's cache until the other side copies it out, so smaller pieces keep both sides
// busy.
constexpr size_t kSocketSlice = size_t{1} << 20;
constexpr size_t kMemorySlice = size_t{32} << 10;
constexpr size_t kFetchSlice = size_t{8} << 20;
// The smallest piece that is lent. Two copies of a smaller one take less time than lending it.
constexpr size_t kLeastLoan = size_t{512} << 10;

// Shortens the pieces to at most `most` bytes in all.
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

Channel::Channel(Link link, SharedMemory memory, bool lower)
    : link_(std::move(link)), notices_(link_.control.get()), memory_(std::move(memory)), lower_(lower) {
  if (!memory_) return;
  writer_ = memory_.writer(lower);
  reader_ = memory_.reader(lower);
  mine_ = &memory_.state().sleeps[lower ? 0 : 1];
  its_ = &memory_.state().sleeps[lower ? 1 : 0];
}

ssize_t Channel::send(iovec* pieces, size_t count, const iovec* for_it_alone) {
  if (memory_) return send_to_memory(pieces, count, for_it_alone);
  const msghdr message = message_of(pieces, count);
  return sendmsg(data(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// Sends bytes of the pieces; if one can be lent, only the bytes before it, and then the loan.
ssize_t Channel::send_to_memory(iovec* pieces, size_t count, const iovec* for_it_alone) {
  if (ended_) {
    errno = EPIPE;
    return -1;
  }
  const bool lends = memory_.lending.lends && for_it_alone != nullptr && for_it_alone->iov_len >= kLeastLoan;
  if (lends) count = static_cast<size_t>(for_it_alone - pieces);
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  size_t sent = writer_.write(pieces, count, kMemorySlice);
  if (lends && sent == bytes && writer_.lend(for_it_alone->iov_base, for_it_alone->iov_len)) {
    sent += for_it_alone->iov_len;
  }
  return moved(sent, Wake::kData);
}

ssize_t Channel::receive(iovec* pieces, size_t count) {
  if (memory_) return receive_from_memory(pieces, count);
  msghdr message = message_of(pieces, count);
  return recvmsg(data(), &message, MSG_DONTWAIT);
}

ssize_t Channel::receive_from_memory(iovec* pieces, size_t count) {
  if (reader_.loan() != nullptr) return fetch(pieces, count);
  const size_t bytes = reader_.read(pieces, count, kMemorySlice);
  if (bytes == 0 && reader_.loan() != nullptr) return fetch(pieces, count);
  const ssize_t n = moved(bytes, Wake::kRoom);
  return n < 0 && errno == EAGAIN && ended_ ? 0 : n;
}

ssize_t Channel::fetch(iovec* pieces, size_t count) {
  const Loan& loan = *reader_.loan();
  const size_t left = loan.bytes - fetched_;
  const ssize_t n =
      memory_.lending.other.read(pieces, cut(pieces, count, std::min(left, kFetchSlice)), loan.address + fetched_);
  if (n < 0) return n;
  if (memory_.state().renounced[lower_ ? 1 : 0].load() != 0) {
    errno = ECANCELED;
    return -1;
  }
  fetched_ += static_cast<size_t>(n);
  if (fetched_ < loan.bytes) return n;
  fetched_ = 0;
  reader_.give_back();
  return moved(static_cast<size_t>(n), Wake::kRoom | Wake::kSettled);
}

void Channel::renounce() const noexcept {
  if (memory_) memory_.state().renounced[lower_ ? 0 : 1].store(1);
}

// Wakes the other side if it sleeps until this happens. The counter was stored before this check, and a sleeper
// announces itself before it checks the counter, so at least one of the two sees the other.
ssize_t Channel::moved(size_t bytes, uint32_t what) {
  if (bytes == 0 || bytes == kRingDamaged) {
    errno = bytes == 0 ? EAGAIN : EBADMSG;
    return -1;
  }
  if ((its_->wants.load() & what) != 0) {
    its_->wants.store(0);
    // If the socket is full, the bell has already rung; if the other end is gone, nobody needs it.
    const char ring = 0;
    [[maybe_unused]] const ssize_t rung = ::send(data(), &ring, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  return static_cast<ssize_t>(bytes);
}

bool Channel::sleeps(uint32_t wants, pollfd* where) {
  if (!memory_) {
    const int events = ((wants & Wake::kRoom) != 0 ? POLLOUT : 0) | ((wants & Wake::kData) != 0 ? POLLIN : 0);
    *where = {data(), static_cast<short>(events), 0};
    return true;
  }
  *where = {data(), POLLIN, 0};
  mine_->wants.store(wants);
  const bool there = ended_ || ((wants & Wake::kRoom) != 0 && writer_.room() > 0) ||
                     ((wants & Wake::kSettled) != 0 && writer_.settled()) ||
                     ((wants & Wake::kData) != 0 && (reader_.available() > 0 || reader_.loan() != nullptr));
  if (there) mine_->wants.store(0, std::memory_order_relaxed);
  return !there;
}

// Reads the bytes that rang the bell. Bytes left in the socket would end the next sleep at once.
void Channel::wake(bool rung) {
  if (!memory_) return;
  mine_->wants.store(0, std::memory_order_relaxed);
  if (!rung) return;
  char rings[64];
  const ssize_t n = recv(data(), rings, sizeof(rings), MSG_DONTWAIT);
  ended_ = n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool Channel::unacknowledged() const {
  int bytes = 0;
  return ioctl(link_.control.get(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace tessera::tcp
