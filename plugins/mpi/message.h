// The messages between ranks: one per operation and peer, which includes small data. Notices of failure are the SDK's.
//
// Integers travel in native byte order: MPI jobs over machines with different byte orders are not supported.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/sdk/pair_failures.h"

namespace tessera::mpi {

// Data of up to this many bytes follows the header in the same message, which shared-memory transports send at once.
inline constexpr size_t kInline = 3904;
// Data of up to this many bytes is sent in its own message, from a copy; larger data is sent from its place.
inline constexpr size_t kCopied = size_t{16} << 10;
struct Message {
  sdk::OpHeader header;
  char data[kInline];
};

using sdk::Notice;

}  // namespace tessera::mpi
