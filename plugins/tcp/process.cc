#include "process.h"

#include <algorithm>
#include <bit>
#include <cerrno>

namespace tessera::tcp {

bool Process::shows_badge() const { return read(nullptr, 0, 0) == 0; }

ssize_t Process::read(const iovec* pieces, size_t count, uint64_t address) const {
  Nonce seen{};
  iovec here[4];
  size_t bytes = 0;
  count = std::min<size_t>(count, 3);
  for (size_t i = 0; i < count; ++i) {
    here[i] = pieces[i];
    bytes += pieces[i].iov_len;
  }
  here[count] = {seen.data(), seen.size()};
  const iovec there[2] = {{std::bit_cast<void*>(address), bytes}, {std::bit_cast<void*>(badge_address), seen.size()}};
  const ssize_t n = process_vm_readv(number, here, count + 1, there, 2, 0);
  if (n < 0) return n;
  if (static_cast<size_t>(n) == bytes + seen.size() && seen == badge) return n - static_cast<ssize_t>(seen.size());
  errno = ESRCH;
  return -1;
}

}  // namespace tessera::tcp
