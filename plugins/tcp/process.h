// Another process of this host whose memory the kernel lets this one read (process_vm_readv, with a debugger's rights).
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "wire.h"

namespace tessera::tcp {

// The identity of a process. Process ids are reused, so each process has a badge: a random number at an address that it
// has told the others. The badge is read together with the memory.
struct Process {
  int32_t number = 0;
  uint64_t badge_address = 0;
  Nonce badge{};

  // True if the process can be read and is still the same.
  bool shows_badge() const;
  // Fills the pieces, at most three, with the memory at `address`. Returns the number of bytes, or -1 and sets errno,
  // which is ESRCH if it is no longer the same process.
  ssize_t read(const iovec* pieces, size_t count, uint64_t address) const;
};

}  // namespace tessera::tcp
