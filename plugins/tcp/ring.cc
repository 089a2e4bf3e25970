#include "ring.h"

#include <algorithm>
#include <cstring>

namespace tessera::tcp {
namespace {

// Bytes that small messages may fill before it is worth checking if the ring is empty.
constexpr size_t kNear = size_t{32} << 10;

// Calls move(piece, at, bytes) for each contiguous stretch, which ends where the ring wraps or a piece ends. The first
// one is at byte `from` of the ring.
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
  if (lends_too_much()) return 0;
  taken_ = state_->taken.load();
  return written_ - taken_ > capacity_ ? kRingDamaged : capacity_ - (written_ - taken_);
}

size_t RingWriter::write(const iovec* pieces, size_t count, size_t most) {
  const size_t wanted = std::min(sum(pieces, count), most);
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

bool RingWriter::lend(const void* data, size_t bytes) {
  if (lends_too_much()) return false;
  state_->loans[lent_ % RingState::kLoans] = {written_, reinterpret_cast<uintptr_t>(data), bytes};
  state_->lent.store(++lent_);
  return true;
}

bool RingWriter::settled() {
  if (returned_ != lent_) returned_ = state_->returned.load();
  return returned_ == lent_;
}

bool RingWriter::lends_too_much() {
  if (lent_ - returned_ >= RingState::kLoans) returned_ = state_->returned.load();
  return lent_ - returned_ >= RingState::kLoans;
}

// `lent` is read after `written`: a reader that sees a byte therefore also sees everything lent before that byte.
size_t RingReader::available() {
  written_ = state_->written.load();
  lent_ = state_->lent.load();
  if (!has_loan_) look_at_next_loan();
  const bool fine = written_ - taken_ <= capacity_ && lent_ - returned_ <= RingState::kLoans &&
                    (!has_loan_ || loan_.at - taken_ <= capacity_);
  return fine ? there() : kRingDamaged;
}

size_t RingReader::there() const {
  const uint64_t bytes = written_ - taken_;
  return has_loan_ ? std::min(bytes, loan_.at - taken_) : bytes;
}

void RingReader::look_at_next_loan() {
  has_loan_ = lent_ != returned_;
  if (has_loan_) loan_ = state_->loans[returned_ % RingState::kLoans];
}

void RingReader::give_back() {
  state_->returned.store(++returned_);
  look_at_next_loan();
}

size_t RingReader::read(const iovec* pieces, size_t count, size_t most) {
  const size_t wanted = std::min(sum(pieces, count), most);
  size_t now = there();
  if (now < wanted) {
    now = available();
    if (now == kRingDamaged) return now;
  }
  const size_t bytes = std::min(wanted, now);
  if (bytes == 0) return 0;
  // `base` changes only while the ring is empty, before `written` does.
  const uint64_t base = state_->base.load(std::memory_order_relaxed);
  stretches(pieces, bytes, taken_ - base, capacity_,
            [&](char* piece, size_t at, size_t n) { std::memcpy(piece, data_ + at, n); });
  taken_ += bytes;
  state_->taken.store(taken_);
  return bytes;
}

}  // namespace tessera::tcp
