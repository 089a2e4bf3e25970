// Another process of this host whose memory the kernel lets this one read (process_vm_readv: the rights of a debugger).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "wire.h"

namespace tessera::tcp {

// The identity of a process: its number is used again when it has gone. So each shows a badge, a random number at an
// address that it has told, and the badge is read together with the memory.
struct Process {
  int32_t number = 0;
  uint64_t badge_address = 0;
  Nonce badge{};

  // True if it can be read, and is the one that it was.
  bool shows_badge() const;
  // Fills the pieces, at most three, with what lies at `address`: how many bytes, or -1 and errno. ESRCH: it is not
  // the process that it was.
  ssize_t read(const iovec* pieces, size_t count, uint64_t address) const;
};

}  // namespace tessera::tcp
