// How data gets to one other rank and back: a stream of bytes, through a socket or through memory that both share.
//
// With shared memory the socket carries no data. It tells when the other is gone, and rings: who sleeps says so in the
// memory, and the other then writes one byte to the socket.
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
  ssize_t send(iovec* pieces, size_t count);
  ssize_t receive(iovec* pieces, size_t count);

  // Where memory is shared: announces that this rank will sleep until it can send or receive, as asked. False: it can
  // now, and nothing was announced. A sleeper polls data() for POLLIN and then calls wake(): `rung`, where that came.
  bool sleeps(bool to_send, bool to_receive);
  void wake(bool rung);

 private:
  ssize_t moved(size_t bytes, uint32_t what);

  Link link_;
  SharedMemory memory_;
  RingWriter writer_;
  RingReader reader_;
  SharedState::Sleep* mine_ = nullptr;
  SharedState::Sleep* its_ = nullptr;
  bool ended_ = false;  // the other side has closed; what it sent before may still lie in the ring
};

}  // namespace tessera::tcp
