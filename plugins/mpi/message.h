// What ranks send each other: one message per operation and peer, with small data in it, and notices of failure.
//
// Integers travel as they lie in memory: MPI jobs over machines of different byte order are not supported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/abi/collective.h"

namespace tessera::mpi {

// An operation as ranks compare it.
enum class OpKind : uint8_t { kAllToAll, kAllReduce, kReduceScatter, kAllGather, kBroadcast, kBarrier };

struct Header {
  OpKind kind = OpKind::kBarrier;
  uint8_t reduce = 0;  // TSR_REDUCE_*
  uint8_t dtype_code = 0;
  uint8_t dtype_bits = 0;
  uint32_t reserved = 0;
  uint64_t sequence = 0;  // of the operation in its group
  uint64_t bytes = 0;     // from this rank to that, in all messages of the operation
  uint64_t total = 0;     // of the whole operation, where all ranks must agree on it; otherwise 0
  char label[32] = {};    // NUL-terminated; for messages only
};
static_assert(sizeof(Header) == 64);

// Data of up to so many bytes travels behind the header, in one message that shared-memory transports send at once.
inline constexpr size_t kInline = 3904;
// Up to so many bytes it follows in a message of its own, from a copy; beyond, from where it lies.
inline constexpr size_t kCopied = size_t{16} << 10;
struct Message {
  Header header;
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

// `all_reduce "loss" (sum of float32, 4096 bytes)`
std::string describe(const Header& header);
// `all_reduce "loss"`
std::string name_of(const Header& header);

// Copies `text` into a fixed array, cut and NUL-terminated.
void set_text(char* to, size_t capacity, std::string_view text);
// What a peer wrote into a fixed array, with anything unprintable replaced.
std::string safe_text(const char* from, size_t capacity);

}  // namespace tessera::mpi
