// One direction of the memory that two ranks of a host share: a ring of bytes with one writer and one reader.
//
// A large piece need not be copied to the ring: the writer lends it between two bytes of the ring, and the reader
// fetches it from the writer's process (process.h) and gives it back.
//
// Either process may break at any time and write anything. Values from the other side are therefore checked against the
// ring's bounds before use, and bytes are as untrusted as bytes from a network.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::tcp {

// A piece of the writer's memory that precedes byte `at` of the ring.
struct Loan {
  uint64_t at = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// The numbers of bytes and loans since the beginning. The writer's and the reader's counters are in separate cache
// lines.
struct RingState {
  static constexpr uint64_t kLoans = 8;  // the most loans in flight

  alignas(128) std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> base{0};  // number of the byte at the beginning of the memory
  std::atomic<uint64_t> lent{0};
  alignas(128) std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> returned{0};
  alignas(128) Loan loans[kLoans];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Returned if the other side's counters are impossible.
inline constexpr size_t kRingDamaged = ~size_t{0};

// The writer returns to the beginning whenever the ring is empty. Small messages thus stay in a few cached pages, and a
// ring uses no more memory than was ever in flight.
class RingWriter {
 public:
  RingWriter() = default;
  // `capacity` is a power of two.
  RingWriter(RingState* state, char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // Returns the number of free bytes, or kRingDamaged. It is also 0 if no further loan is possible.
  size_t room();
  // Writes bytes of the pieces, in order, as space permits and at most `most`. Returns the number of bytes, or
  // kRingDamaged.
  size_t write(const iovec* pieces, size_t count, size_t most);
  // Lends memory that must not change until settled(). Returns false if too many loans are in flight.
  bool lend(const void* data, size_t bytes);
  // True if everything that was lent has been returned.
  bool settled();

 private:
  bool lends_too_much();

  RingState* state_ = nullptr;
  char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t written_ = 0;
  uint64_t base_ = 0;
  uint64_t lent_ = 0;
  uint64_t taken_ = 0, returned_ = 0;  // as last read
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingState* state, const char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // Returns the number of available bytes up to the next loan, or kRingDamaged.
  size_t available();
  // Fills the pieces in order with available bytes, at most `most`. Returns the number of bytes, or kRingDamaged.
  size_t read(const iovec* pieces, size_t count, size_t most);
  // The loan to take next; null if there is none, or if bytes come first. Null until available() was called.
  const Loan* loan() const { return has_loan_ && loan_.at == taken_ ? &loan_ : nullptr; }
  void give_back();

 private:
  size_t there() const;
  void look_at_next_loan();

  RingState* state_ = nullptr;
  const char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t taken_ = 0, returned_ = 0;
  uint64_t written_ = 0, lent_ = 0;  // as last read
  bool has_loan_ = false;
  Loan loan_;  // next loan
};

}  // namespace tessera::tcp
