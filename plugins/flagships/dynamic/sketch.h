// Who is admitted: sightings of ids that have no row yet.
#pragma once

#include <algorithm>
#include <cstdint>

#include "key.h"
#include "pages.h"

namespace flagships {

// How often ids were seen that have no row: for each bucket 256 counters of a byte, halved when many were counted. Of
// an id's two counters the lower counts.
class Sketch {
 public:
  static constexpr int64_t kCounters = 256;
  Sketch() = default;
  explicit Sketch(int64_t buckets)
      : buckets_(buckets),
        counters_(static_cast<uint64_t>(buckets * kCounters)),
        counted_(static_cast<uint64_t>(buckets)) {}
  bool empty() const { return buckets_ == 0; }
  uint64_t bytes() const { return static_cast<uint64_t>(buckets_) * (kCounters + sizeof(uint32_t)); }

  // Sightings with these ones, about: never too few since the counters were last halved.
  uint32_t add(const Key& key, uint32_t sightings) {
    uint8_t* own = counters_.data() + key.bucket * kCounters;
    uint8_t &a = own[key.hash >> 24 & 0xff], &b = own[key.hash >> 32 & 0xff];
    const uint32_t seen = std::min(uint32_t{std::min(a, b)} + sightings, uint32_t{255});
    a = std::max(a, static_cast<uint8_t>(seen));
    b = std::max(b, static_cast<uint8_t>(seen));
    uint32_t& counted = counted_[static_cast<uint64_t>(key.bucket)];
    counted += sightings;
    if (counted >= 16 * kCounters) {
      counted /= 2;
      for (int64_t i = 0; i < kCounters; ++i) own[i] /= 2;
    }
    return seen;
  }

  // Of the buckets that have counted anything.
  template <class Write>
  void save(const Write& write) const {
    Saved head{buckets_, 0};
    for (int64_t b = 0; b < buckets_; ++b) head.used += of(b) > 0 ? 1 : 0;
    write(&head, sizeof(head));
    for (int64_t b = 0; b < buckets_; ++b) {
      if (of(b) == 0) continue;
      const int64_t own[2] = {b, of(b)};
      write(own, sizeof(own));
      write(counters_.data() + b * kCounters, kCounters);
    }
  }
  // Of a table with other buckets nothing can be told.
  template <class Read>
  void add(const Read& read) {
    Saved head{};
    read(&head, sizeof(head));
    for (; head.used > 0; --head.used) {
      int64_t own[2] = {};
      uint8_t counters[kCounters];
      read(own, sizeof(own));
      read(counters, sizeof(counters));
      if (head.buckets != buckets_ || own[0] < 0 || own[0] >= buckets_) continue;
      auto& counted = counted_[static_cast<uint64_t>(own[0])];
      counted = std::max(counted, static_cast<uint32_t>(own[1]));
      for (int64_t i = 0; i < kCounters; ++i) {
        uint8_t& counter = counters_[static_cast<uint64_t>(own[0] * kCounters + i)];
        counter = std::max(counter, counters[i]);
      }
    }
  }

 private:
  struct Saved {
    int64_t buckets, used;
  };
  int64_t of(int64_t bucket) const { return counted_[static_cast<uint64_t>(bucket)]; }

  int64_t buckets_ = 0;
  Pages<uint8_t> counters_;
  Pages<uint32_t> counted_;
};

}  // namespace flagships
