// Moves data to and from one other rank: a stream of bytes, through a socket or through memory shared by both.
//
// With shared memory the socket carries no data. It shows when the other rank is gone, and serves as a bell: a rank
// that sleeps says so in the memory, and the other then writes one byte to the socket.
//
// Large pieces are lent if the other process may read this one's memory. They count as sent, but must not change until
// settled() returns true.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "copy.h"
#include "link.h"
#include "shared_memory.h"
#include "tessera/sdk/pair_link.h"

namespace tessera::tcp {

class Channel : public sdk::PairLink {  // used by sdk::PairEngine
 public:
  static constexpr const char* kName = "tcp";
  // Copies past the cache. Most of the data would leave the cache before it is read, and would evict other ranks' data.
  static void copy_much(char* to, const char* from, size_t bytes) { copy_past_cache(to, from, bytes); }

  Channel() = default;
  // `lower`: true if this rank is lower than the other.
  Channel(Link link, SharedMemory memory, bool lower);

  bool shares_memory() const { return static_cast<bool>(memory_); }

  // Only the piece `for_it_alone` may be lent, because processes that read the same memory wait for each other.
  ssize_t send(iovec* pieces, size_t count, const iovec* for_it_alone);
  ssize_t receive(iovec* pieces, size_t count);

  bool settled() { return !memory_ || writer_.settled(); }
  void renounce() const noexcept;

  // If memory is shared, announces the events in `wants`, so that the other rank rings when it causes one. Returns
  // false if nothing was announced.
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
  size_t fetched_ = 0;  // bytes already fetched of the current loan
  bool lower_ = false;
  bool ended_ = false;  // the other side has closed; earlier data may still be in the ring
};

}  // namespace tessera::tcp
