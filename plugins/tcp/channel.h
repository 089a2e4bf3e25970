// How data gets to one other rank and back: a stream of bytes, through a socket or through memory that both share.
//
// With shared memory the socket carries no data. It tells when the other is gone, and rings: who sleeps says so in the
// memory, and the other then writes one byte to the socket.
//
// Large pieces are lent where the other process may read this one's memory: they have been sent, but must stay as they
// are until settled().
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "fd.h"
#include "shared_memory.h"

namespace tessera::tcp {

class Channel {
 public:
  Channel() = default;
  // `lower`: this rank is below the other.
  Channel(Link link, SharedMemory memory, bool lower);

  int data() const { return link_.data.get(); }
  int control() const { return link_.control.get(); }
  bool shares_memory() const { return static_cast<bool>(memory_); }

  // Like sendmsg() and recvmsg() that do not wait: how many bytes went, 0 where the other side has closed (receive), -1
  // and errno; EBADMSG: the shared memory holds what cannot be.
  // `for_it_alone`: the piece that goes to this rank and no other, null if none. It is the only one that may be lent:
  // to read the same memory makes processes wait for each other.
  ssize_t send(iovec* pieces, size_t count, const iovec* for_it_alone);
  ssize_t receive(iovec* pieces, size_t count);

  // Whether the memory of what was sent may be used again.
  bool settled() { return !memory_ || writer_.settled(); }
  // [any-thread] What was lent may change from now on, settled or not: the other shall not believe it.
  void renounce() const noexcept;

  // Where memory is shared: announces that this rank will sleep until what it `wants` (bits of Wake) comes. False: it
  // is there, or never will be, and nothing was announced. A sleeper polls data() for POLLIN and then calls wake():
  // `rung`, where that came.
  bool sleeps(uint32_t wants);
  void wake(bool rung);
  bool ended() const { return ended_; }

 private:
  ssize_t moved(size_t bytes, uint32_t what);
  ssize_t send_to_memory(iovec* pieces, size_t count, const iovec* for_it_alone);
  ssize_t receive_from_memory(iovec* pieces, size_t count);
  ssize_t fetch(iovec* pieces, size_t count);

  Link link_;
  SharedMemory memory_;
  RingWriter writer_;
  RingReader reader_;
  SharedState::Sleep* mine_ = nullptr;
  SharedState::Sleep* its_ = nullptr;
  size_t fetched_ = 0;  // bytes of the loan that is being fetched
  bool lower_ = false;
  bool ended_ = false;  // the other side has closed; what it sent before may still lie in the ring
};

}  // namespace tessera::tcp
