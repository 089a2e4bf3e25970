// What ranks send each other: one message per operation and peer, with small data in it, and notices of failure.
//
// Integers travel as they lie in memory: MPI jobs over machines of different byte order are not supported.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/sdk/pairwise.h"

namespace tessera::mpi {

// Data of up to so many bytes travels behind the header, in one message that shared-memory transports send at once.
inline constexpr size_t kInline = 3904;
// Up to so many bytes it follows in a message of its own, from a copy; beyond, from where it lies.
inline constexpr size_t kCopied = size_t{16} << 10;
struct Message {
  sdk::OpHeader header;
  char data[kInline];
};

// Tells the others that this rank gave up, or that it leaves in good order.
struct Notice {
  enum Kind : int32_t { kAbort = 1, kGoodbye = 2 };
  int32_t kind = kGoodbye;
  int32_t rank = 0;       // of the sender in the group
  int32_t code = TSR_OK;  // what the receiver reports
  int32_t reserved = 0;
  uint64_t sequence = 0;  // how many operations the sender has started
  char text[488] = {};    // NUL-terminated
};
static_assert(sizeof(Notice) == 512);

using sdk::safe_text;
using sdk::set_text;

}  // namespace tessera::mpi
