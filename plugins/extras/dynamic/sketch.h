// Counts sightings of ids that have no row yet, to decide which ids are admitted.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "key.h"
#include "pages.h"

namespace extras {

// An approximate count per id. Each bucket has up to 256 one-byte counters, which are halved after many counts. An id
// has two counters; the lower one is its count.
class Sketch {
 public:
  Sketch() = default;
  // A sketch for buckets with this many slots each.
  Sketch(int64_t buckets, int64_t slots)
      : buckets_(buckets),
        of_bucket_(
            std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(8 * slots))), 16, kMost)),
        counters_(static_cast<uint64_t>(buckets * of_bucket_)),
        counted_(static_cast<uint64_t>(buckets)) {}
  bool empty() const { return buckets_ == 0; }
  uint64_t bytes() const {
    return static_cast<uint64_t>(buckets_) * (static_cast<uint64_t>(of_bucket_) + sizeof(uint32_t));
  }

  // Adds sightings, and returns the approximate number of all. Except for the halving, it is never too low.
  uint32_t add(const Key& key, uint32_t sightings) {
    uint8_t* own = counters_.data() + key.bucket * of_bucket_;
    const auto mask = static_cast<uint64_t>(of_bucket_ - 1);
    uint8_t &a = own[key.hash >> 24 & mask], &b = own[key.hash >> 32 & mask];
    const uint32_t seen = std::min(uint32_t{std::min(a, b)} + sightings, uint32_t{255});
    a = std::max(a, static_cast<uint8_t>(seen));
    b = std::max(b, static_cast<uint8_t>(seen));
    uint32_t& counted = counted_[static_cast<uint64_t>(key.bucket)];
    counted += sightings;
    if (counted >= 16 * of_bucket_) {
      counted /= 2;
      for (int64_t i = 0; i < of_bucket_; ++i) own[i] /= 2;
    }
    return seen;
  }

  // Writes the counters of all buckets that are not zero.
  template <class Write>
  void save(const Write& write) const {
    Saved head{buckets_ | of_bucket_ << kShift, 0};
    for (int64_t b = 0; b < buckets_; ++b) head.used += of(b) > 0 ? 1 : 0;
    write(&head, sizeof(head));
    for (int64_t b = 0; b < buckets_; ++b) {
      if (of(b) == 0) continue;
      const int64_t own[2] = {b, of(b)};
      write(own, sizeof(own));
      write(counters_.data() + b * of_bucket_, static_cast<uint64_t>(of_bucket_));
    }
  }
  // Adds saved counters. Those of a table with other buckets are dropped.
  template <class Read>
  void add(const Read& read) {
    Saved head{};
    read(&head, sizeof(head));
    // An older format did not save the number of counters, which reads as 0.
    const int64_t saved = head.buckets >> kShift, count = saved == 0 ? kMost : saved;
    if (count < 0 || count > kMost) tessera::sdk::fail(TSR_DATA_LOSS, "a sketch of ", count, " counters was saved");
    head.buckets &= (int64_t{1} << kShift) - 1;
    for (; head.used > 0; --head.used) {
      int64_t own[2] = {};
      uint8_t counters[kMost];
      read(own, sizeof(own));
      read(counters, static_cast<uint64_t>(count));
      if (head.buckets != buckets_ || count != of_bucket_ || own[0] < 0 || own[0] >= buckets_) continue;
      auto& counted = counted_[static_cast<uint64_t>(own[0])];
      counted = std::max(counted, static_cast<uint32_t>(own[1]));
      for (int64_t i = 0; i < of_bucket_; ++i) {
        uint8_t& counter = counters_[static_cast<uint64_t>(own[0] * of_bucket_ + i)];
        counter = std::max(counter, counters[i]);
      }
    }
  }

 private:
  static constexpr int64_t kMost = 256;
  static constexpr int kShift = 48;
  struct Saved {
    int64_t buckets;  // number of buckets and, from bit kShift on, counters per bucket
    int64_t used;
  };
  int64_t of(int64_t bucket) const { return counted_[static_cast<uint64_t>(bucket)]; }

  int64_t buckets_ = 0;
  int64_t of_bucket_ = 0;  // counters per bucket, a power of two
  Pages<uint8_t> counters_;
  Pages<uint32_t> counted_;
};

}  // namespace extras
