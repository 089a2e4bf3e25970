// Maps row ids to numbers below 2^32, by open addressing in one array that grows.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace extras {

class IdMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  IdMap() : seats_(kFewest, Seat{-1, kNone}) {}

  // kNone if the id has no number.
  uint32_t find(int64_t id) const { return seats_[seat_of(id)].value; }
  // Returns true if the id was new. A known id keeps its number.
  bool insert(int64_t id, uint32_t value) {
    const size_t at = seat_of(id);
    if (seats_[at].value != kNone) return false;
    seats_[at] = {id, value};
    if (2 * ++size_ > seats_.size()) grow();
    return true;
  }
  void erase(int64_t id) {
    size_t hole = seat_of(id);
    if (seats_[hole].value == kNone) return;
    --size_;
    seats_[hole].value = kNone;
    // A later entry moves into the hole if that is nearer to its home.
    for (size_t at = next(hole); seats_[at].value != kNone; at = next(at)) {
      const size_t home = home_of(seats_[at].id);
      if (((at - home) & (seats_.size() - 1)) < ((at - hole) & (seats_.size() - 1))) continue;
      seats_[hole] = seats_[at];
      seats_[at].value = kNone;
      hole = at;
    }
  }
  void clear() {
    if (size_ > 0) seats_.assign(seats_.size(), Seat{-1, kNone});
    size_ = 0;
  }
  size_t size() const { return size_; }
  size_t bytes() const { return seats_.size() * sizeof(Seat); }

 private:
  static constexpr size_t kFewest = 16;
  struct Seat {
    int64_t id;
    uint32_t value;
  };
  size_t next(size_t at) const { return (at + 1) & (seats_.size() - 1); }
  size_t home_of(int64_t id) const {
    const uint64_t mixed = static_cast<uint64_t>(id) * 0x9e3779b97f4a7c15;
    return static_cast<size_t>(mixed >> 32) & (seats_.size() - 1);
  }
  size_t seat_of(int64_t id) const {
    size_t at = home_of(id);
    while (seats_[at].value != kNone && seats_[at].id != id) at = next(at);
    return at;
  }
  void grow() {
    std::vector<Seat> old(2 * seats_.size(), Seat{-1, kNone});
    old.swap(seats_);
    for (const Seat& seat : old) {
      if (seat.value != kNone) seats_[seat_of(seat.id)] = seat;
    }
  }

  std::vector<Seat> seats_;
  size_t size_ = 0;
};

}  // namespace extras
