// One direction of the memory that two ranks of a host share: a ring of bytes, one writer, one reader.
//
// Bytes of a large piece may stay where they are: between two bytes of the ring the writer then lends the piece, which
// the reader fetches out of the writer's process (process.h) and gives back.
//
// Either process may break at any time and write anything: what the other side says is checked against the ring's
// bounds before it is used, and bytes that were read count as bytes from a network.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace tessera::tcp {

// A piece of the writer's memory, which comes before byte `at` of the ring.
struct Loan {
  uint64_t at = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Bytes and loans since the beginning. The writer's and the reader's counters lie in cache lines of their own.
struct RingState {
  static constexpr uint64_t kLoans = 8;  // at once

  alignas(128) std::atomic<uint64_t> written{0};
  std::atomic<uint64_t> base{0};  // which byte lies at the beginning of the memory
  std::atomic<uint64_t> lent{0};
  alignas(128) std::atomic<uint64_t> taken{0};
  std::atomic<uint64_t> returned{0};
  alignas(128) Loan loans[kLoans];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The message of the other side is impossible.
inline constexpr size_t kRingDamaged = ~size_t{0};

// Starts at the beginning again whenever the ring is empty then, so that small messages stay in a few pages that the
// caches know, and a ring takes no more memory than was ever under way.
class RingWriter {
 public:
  RingWriter() = default;
  // `capacity` is a power of two.
  RingWriter(RingState* state, char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // Room for so many bytes now, 0 also where there is none for another loan; kRingDamaged.
  size_t room();
  // Writes bytes of the pieces, in order, as far as there is room, and at most `most`. Returns how many, or
  // kRingDamaged.
  size_t write(const iovec* pieces, size_t count, size_t most);
  // Memory that stays as it is until settled(). False: too many are under way.
  bool lend(const void* data, size_t bytes);
  // True if everything that was lent has come back.
  bool settled();

 private:
  bool lends_too_much();

  RingState* state_ = nullptr;
  char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t written_ = 0;
  uint64_t base_ = 0;
  uint64_t lent_ = 0;
  uint64_t taken_ = 0, returned_ = 0;  // when they were last looked up
};

class RingReader {
 public:
  RingReader() = default;
  RingReader(RingState* state, const char* data, size_t capacity) : state_(state), data_(data), capacity_(capacity) {}

  // So many bytes are there now, up to the next loan; kRingDamaged.
  size_t available();
  // Fills the pieces in order with what is there, at most `most`: how many bytes, or kRingDamaged.
  size_t read(const iovec* pieces, size_t count, size_t most);
  // The loan that is to be taken next; null: none, or bytes come first. Null as long as available() was not asked.
  const Loan* loan() const { return has_loan_ && loan_.at == taken_ ? &loan_ : nullptr; }
  void give_back();

 private:
  size_t there() const;
  void look_at_next_loan();

  RingState* state_ = nullptr;
  const char* data_ = nullptr;
  size_t capacity_ = 0;
  uint64_t taken_ = 0, returned_ = 0;
  uint64_t written_ = 0, lent_ = 0;  // when they were last looked up
  bool has_loan_ = false;
  Loan loan_;  // the next one
};

}  // namespace tessera::tcp
