// One direction of the memory that two ranks of a host share: a ring of bytes, one writer, one reader.
//
// Either process may break at any time and write anything: what the other side says is checked against the ring's
// bounds before it is used, and bytes that were read count as bytes from a network.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::tcp {

// Bytes since the beginning. Each counter is written by one side alone and lies in cache lines of its own.
struct RingState {
  alignas(128) std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> base{0};  // the writer's: which byte lies at the beginning of the memory
  alignas(128) std::atomic<uint64_t> taken{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// What the other side says cannot be.
inline constexpr size_t kRingDamaged = ~size_t{0};

// Starts at the beginning again whenever the ring is empty then, so that small messages stay in a few pages that the
// caches know, and a ring takes no more memory than was ever under way.
class RingWriter {
 public:
  RingWriter() = default;
  // `capacity` is a power of two.
  RingWriter(RingState* state, char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // Room for so many bytes now; kRingDamaged.
  size_t room();
  // As many bytes of the pieces, in order, as there is room for: how many, or kRingDamaged.
  size_t write(const iovec* pieces, size_t count);

 private:
  RingState* state_ = nullptr;
  char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t written_ = 0;
  uint64_t base_ = 0;
  uint64_t taken_ = 0;  // when it was last looked up
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingState* state, const char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // So many bytes are there now; kRingDamaged.
  size_t available();
  // Fills the pieces in order with what is there: how many bytes, or kRingDamaged.
  size_t read(const iovec* pieces, size_t count);

 private:
  RingState* state_ = nullptr;
  const char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t taken_ = 0;
  uint64_t written_ = 0;  // when it was last looked up
};

}  // namespace tessera::tcp
