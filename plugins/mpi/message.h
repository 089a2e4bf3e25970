// What ranks send each other: one message per operation and peer, with small data in it; notices of
// failure are the SDK's.
//
// Integers travel as they lie in memory: MPI jobs over machines of different byte order are not supported.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/sdk/pair_failures.h"

namespace tessera::mpi {

// Data of up to so many bytes travels behind the header, in one message that shared-memory transports send at once.
inline constexpr size_t kInline = 3904;
// Up to so many bytes it follows in a message of its own, from a copy; beyond, from where it lies.
inline constexpr size_t kCopied = size_t{16} << 10;
struct Message {
  sdk::OpHeader header;
  char data[kInline];
};

using sdk::Notice;

}  // namespace tessera::mpi
