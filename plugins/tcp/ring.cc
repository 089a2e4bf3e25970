#include "ring.h"

#include <algorithm>
#include <cstring>

namespace tessera::tcp {
namespace {

// As far as small messages go before it is worth a look whether the ring is empty.
constexpr size_t kNear = size_t{32} << 10;

// Calls move(piece, at, bytes) for stretches that wrap neither in the ring nor in the pieces, from byte `from` of the
// ring on.
template <class Move>
void stretches(const iovec* pieces, size_t bytes, uint64_t from, size_t capacity, Move&& move) {
  for (; bytes > 0; ++pieces) {
    char* piece = static_cast<char*>(pieces->iov_base);
    size_t left = std::min(pieces->iov_len, bytes);
    bytes -= left;
    while (left > 0) {
      const size_t at = from & (capacity - 1);
      const size_t n = std::min(left, capacity - at);
      move(piece, at, n);
      piece += n;
      from += n;
      left -= n;
    }
  }
}

size_t sum(const iovec* pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

}  // namespace

size_t RingWriter::room() {
  taken_ = state_->taken.load();
  return written_ - taken_ > capacity_ ? kRingDamaged : capacity_ - (written_ - taken_);
}

size_t RingWriter::write(const iovec* pieces, size_t count) {
  const size_t wanted = sum(pieces, count);
  size_t free = capacity_ - (written_ - taken_);
  const bool far = written_ - base_ >= kNear;
  if (free < wanted || far) {
    free = room();
    if (free == kRingDamaged) return free;
    if (far && free == capacity_) state_->base.store(base_ = written_, std::memory_order_relaxed);
  }
  const size_t bytes = std::min(wanted, free);
  if (bytes == 0) return 0;
  stretches(pieces, bytes, written_ - base_, capacity_,
            [&](const char* piece, size_t at, size_t n) { std::memcpy(data_ + at, piece, n); });
  written_ += bytes;
  state_->written.store(written_);
  return bytes;
}

size_t RingReader::available() {
  written_ = state_->written.load();
  return written_ - taken_ > capacity_ ? kRingDamaged : written_ - taken_;
}

size_t RingReader::read(const iovec* pieces, size_t count) {
  const size_t wanted = sum(pieces, count);
  size_t there = written_ - taken_;
  if (there < wanted) {
    there = available();
    if (there == kRingDamaged) return there;
  }
  const size_t bytes = std::min(wanted, there);
  if (bytes == 0) return 0;
  // Changes only while the ring is empty, before `written` does.
  const uint64_t base = state_->base.load(std::memory_order_relaxed);
  stretches(pieces, bytes, taken_ - base, capacity_,
            [&](char* piece, size_t at, size_t n) { std::memcpy(piece, data_ + at, n); });
  taken_ += bytes;
  state_->taken.store(taken_);
  return bytes;
}

}  // namespace tessera::tcp
