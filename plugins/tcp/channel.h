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

#include "copy.h"
#include "link.h"
#include "shared_memory.h"
#include "tessera/sdk/pair_link.h"

namespace tessera::tcp {

class Channel : public sdk::PairLink {  // as sdk::PairEngine takes it
 public:
  static constexpr const char* kName = "tcp";
  // Past the cache: most of it would be gone before it is read, and it does not drive out what the others send.
  static void copy_much(char* to, const char* from, size_t bytes) { copy_past_cache(to, from, bytes); }

  Channel() = default;
  // `lower`: this rank is below the other.
  Channel(Link link, SharedMemory memory, bool lower);

  bool shares_memory() const { return static_cast<bool>(memory_); }

  // A piece `for_it_alone` is the only one that may be lent: to read the same memory makes processes wait for each
  // other.
  ssize_t send(iovec* pieces, size_t count, const iovec* for_it_alone);
  ssize_t receive(iovec* pieces, size_t count);

  bool settled() { return !memory_ || writer_.settled(); }
  void renounce() const noexcept;

  // Where memory is shared, announces it: whoever makes true what this rank wants then rings. False: nothing was
  // announced.
  bool sleeps(uint32_t wants, pollfd* where);
  void wake(bool rung);
  bool ended() const { return ended_; }
  bool unacknowledged() const;
  sdk::NoticeSocket& notices() { return notices_; }
  const sdk::NoticeSocket& notices() const { return notices_; }

 private:
  int data() const { return link_.data.get(); }
  ssize_t moved(size_t bytes, uint32_t what);
  ssize_t send_to_memory(iovec* pieces, size_t count, const iovec* for_it_alone);
  ssize_t receive_from_memory(iovec* pieces, size_t count);
  ssize_t fetch(iovec* pieces, size_t count);

  Link link_;
  sdk::NoticeSocket notices_;  // over link_.control
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
