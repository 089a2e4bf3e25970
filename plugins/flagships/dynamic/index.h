// From ids to slots: a bucket has up to 128 of them, found by one byte of the id's hash. Apart from the rows, 17 bytes
// a slot; 21 where sightings are counted.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "buckets.h"
#include "pages.h"
#include "policy.h"

namespace flagships {

constexpr uint32_t kNone = ~0u;

// An id with what follows from it.
struct Key {
  int64_t id;
  uint64_t hash;
  int64_t bucket;
  // 0 is an empty slot's.
  uint8_t digest() const { return std::max<uint8_t>(1, static_cast<uint8_t>(hash)); }
};

class Index {
 public:
  struct Slot {
    int64_t id;
    uint32_t row;   // which it keeps when its id changes
    uint32_t step;  // of the last sighting
  };

  Index() = default;
  Index(const Buckets& buckets, int64_t max_rows, const Policy& policy)
      : buckets_(buckets),
        groups_((buckets.slots + kGroup - 1) / kGroup),
        max_rows_(max_rows),
        evict_(policy.evict),
        half_life_(static_cast<float>(policy.half_life)),
        ttl_(policy.ttl),
        pinned_(policy.pinned),
        digests_(static_cast<uint64_t>(buckets.count * groups_ * kGroup)),
        slots_(static_cast<uint64_t>(buckets.count * buckets.slots)),
        counts_(policy.evict == Evict::kLru ? 0 : static_cast<uint64_t>(buckets.count * buckets.slots)) {}

  int64_t num_slots() const { return buckets_.count * buckets_.slots; }
  int64_t used() const { return used_; }
  const Slot& slot(uint32_t i) const { return slots_[i]; }
  bool is_used(uint32_t i) const { return digests_[i / buckets_.slots * groups_ * kGroup + i % buckets_.slots] != 0; }
  static constexpr uint64_t kBytes = 1 + sizeof(Slot) + 4;  // of a slot, at most

  // What find() will look at first. Always inlined: GCC 12 drops calls of functions that do nothing but prefetch.
  [[gnu::always_inline]] void prefetch(const Key& key) const {
    __builtin_prefetch(digests_.data() + group_at(key, first_group(key)));
  }
  // What take() may look through.
  [[gnu::always_inline]] void prefetch_bucket(const Key& key) const {
    const auto* first = reinterpret_cast<const char*>(slots_.data() + first_slot(key));
    for (int64_t at = 0; at < buckets_.slots * static_cast<int64_t>(sizeof(Slot)); at += 64)
      __builtin_prefetch(first + at);
  }
  // The slot that find() will most likely give; kNone: ask it. Slots that it will look at are on their way then.
  uint32_t guess(const Key& key) const {
    for (int64_t k = 0, g = groups_ == 0 ? 0 : first_group(key); k < groups_; ++k) {
      const uint8_t* digests = digests_.data() + group_at(key, g);
      const uint32_t match = equal(digests, key.digest());
      const auto first = static_cast<uint32_t>(first_slot(key) + g * kGroup + std::countr_zero(match));
      for (uint32_t rest = match; rest != 0; rest &= rest - 1)
        __builtin_prefetch(&slots_[first_slot(key) + g * kGroup + std::countr_zero(rest)], 1);
      if (match != 0) return first;
      if ((equal(digests, 0) & valid(g)) != 0) return kNone;
      if (++g == groups_) g = 0;
    }
    return kNone;
  }
  uint32_t find(const Key& key) const {
    for (int64_t k = 0, g = groups_ == 0 ? 0 : first_group(key); k < groups_; ++k) {
      const uint8_t* digests = digests_.data() + group_at(key, g);
      for (uint32_t match = equal(digests, key.digest()); match != 0; match &= match - 1) {
        const auto at = static_cast<uint32_t>(first_slot(key) + g * kGroup + std::countr_zero(match));
        if (slots_[at].id == key.id) return at;
      }
      if ((equal(digests, 0) & valid(g)) != 0) return kNone;  // slots are never given back
      if (++g == groups_) g = 0;
    }
    return kNone;
  }

  // A sighting in a step. True where the row counted as gone, and begins anew.
  bool touch(uint32_t at, uint32_t step) {
    Slot& slot = slots_[at];
    const uint32_t before = std::exchange(slot.step, step);
    const bool gone = expired(before, step);
    if (evict_ != Evict::kLru) counts_[at] = seen_once_more(gone ? 0 : counts_[at], step - before);
    return gone;
  }
  bool expired(uint32_t last, uint32_t step) const {
    return last < expired_below_ || (ttl_ > 0 && int64_t{step} - int64_t{last} > ttl_);
  }
  // Rows that were last sighted before this step count as gone.
  void expire_below(uint32_t step) { expired_below_ = std::max(expired_below_, step); }
  bool pinned(int64_t id) const { return std::binary_search(pinned_.begin(), pinned_.end(), id); }

  // A slot for an id that has none: an empty one, else that of the id with the lowest rank which this step has not
  // seen. kNone: there is no such. `evicted`: the slot had another id.
  uint32_t take(const Key& key, uint32_t step, uint32_t sightings, bool& evicted) {
    evicted = false;
    uint32_t at = used_ < max_rows_ ? empty_slot(key) : kNone;
    if (at != kNone) {
      slots_[at].row = static_cast<uint32_t>(used_++);
    } else {
      at = victim(key, step, step);
      if (at == kNone) return kNone;
      evicted = true;
    }
    digest(key, at) = key.digest();
    slots_[at].id = key.id;
    slots_[at].step = step;
    if (evict_ != Evict::kLru) counts_[at] = first_count(sightings);
    return at;
  }

  // The same for a row that was elsewhere before and is as it was sighted there. kNone: those of its bucket all rank
  // above it.
  uint32_t take_back(const Key& key, uint32_t step, uint32_t count_bits, bool& evicted) {
    evicted = false;
    uint32_t at = used_ < max_rows_ ? empty_slot(key) : kNone;
    if (at != kNone) {
      slots_[at].row = static_cast<uint32_t>(used_++);
    } else {
      at = victim(key, step, kNone);
      const Slot own{key.id, 0, step};
      if (at == kNone || (!pinned(key.id) && !goes_first(at, slots_[at], own, count_bits, step))) return kNone;
      evicted = true;
    }
    digest(key, at) = key.digest();
    slots_[at].id = key.id;
    return at;
  }

  // A slot of its bucket, which is empty, for an id that has none. False where it is not so.
  bool put(const Key& key, uint32_t at) {
    if (key.id < 0 || key.bucket >= buckets_.count || at / buckets_.slots != key.bucket || used_ >= max_rows_ ||
        is_used(at) || find(key) != kNone)
      return false;
    slots_[at] = {key.id, static_cast<uint32_t>(used_++), 0};
    digest(key, at) = key.digest();
    return true;
  }

  uint32_t count_bits(uint32_t at) const { return evict_ == Evict::kLru ? 0 : counts_[at]; }
  void restore(uint32_t at, uint32_t step, uint32_t count_bits) {
    slots_[at].step = step;
    if (evict_ != Evict::kLru) counts_[at] = count_bits;
  }
  uint32_t first_count(uint32_t sightings) const {
    return evict_ == Evict::kDecayed ? std::bit_cast<uint32_t>(static_cast<float>(sightings)) : sightings;
  }

 private:
  static constexpr int64_t kGroup = 16;  // digests compared at once

  // Bit i: digests[i] is `wanted`.
  static uint32_t equal(const uint8_t* digests, uint8_t wanted) {
#if defined(__SSE2__)
    const __m128i all = _mm_loadu_si128(reinterpret_cast<const __m128i*>(digests));
    return static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(all, _mm_set1_epi8(static_cast<char>(wanted)))));
#else
    uint32_t out = 0;
    for (int64_t i = 0; i < kGroup; ++i) out |= static_cast<uint32_t>(digests[i] == wanted) << i;
    return out;
#endif
  }
  // Of a bucket's last group some may lie behind its slots.
  uint32_t valid(int64_t group) const {
    const int64_t there = std::min(kGroup, buckets_.slots - group * kGroup);
    return (uint32_t{1} << there) - 1;
  }
  int64_t first_group(const Key& key) const {
    return static_cast<int64_t>((key.hash >> 8 & 0xffff) * static_cast<uint64_t>(groups_) >> 16);
  }
  int64_t group_at(const Key& key, int64_t group) const { return (key.bucket * groups_ + group) * kGroup; }
  int64_t first_slot(const Key& key) const { return key.bucket * buckets_.slots; }
  uint8_t& digest(const Key& key, uint32_t at) const {
    return digests_[static_cast<uint64_t>(group_at(key, 0) + at - first_slot(key))];
  }

  uint32_t empty_slot(const Key& key) const {
    for (int64_t k = 0, g = groups_ == 0 ? 0 : first_group(key); k < groups_; ++k) {
      const uint32_t empty = equal(digests_.data() + group_at(key, g), 0) & valid(g);
      if (empty != 0) return static_cast<uint32_t>(first_slot(key) + g * kGroup + std::countr_zero(empty));
      if (++g == groups_) g = 0;
    }
    return kNone;
  }

  // Lower goes first: what counts as gone, then by the policy.
  float score(const Slot& slot, uint32_t count_bits, uint32_t step) const {
    if (expired(slot.step, step)) return -1;
    if (evict_ == Evict::kLfu) return static_cast<float>(count_bits);
    const uint32_t now = std::max(step, slot.step);
    return evict_ == Evict::kDecayed ? decayed(count_bits, now - slot.step) : 0;
  }
  // Of equal scores the longer unseen, then the lower hash.
  static bool goes_first(const Slot& a, const Slot& b) {
    return a.step != b.step ? a.step < b.step : scrambled(a.id) < scrambled(b.id);
  }
  // Whether the slot at `at` goes before an id that has none.
  bool goes_first(uint32_t at, const Slot& slot, const Slot& other, uint32_t count_bits, uint32_t step) const {
    const uint32_t now = std::max(step, slot.step);
    const float own = score(slot, this->count_bits(at), now), others = score(other, count_bits, now);
    return own != others ? own < others : goes_first(slot, other);
  }
  // Not one that was sighted in step `spared`.
  uint32_t victim(const Key& key, uint32_t step, uint32_t spared) const {
    uint32_t out = kNone;
    float lowest = 0;
    for (int64_t i = 0; i < buckets_.slots; ++i) {
      const auto at = static_cast<uint32_t>(first_slot(key) + i);
      if (digest(key, at) == 0 || slots_[at].step == spared) continue;
      if (!pinned_.empty() && pinned(slots_[at].id)) continue;
      const float own = score(slots_[at], count_bits(at), step);
      if (out != kNone && (own > lowest || (own == lowest && !goes_first(slots_[at], slots_[out])))) continue;
      out = at;
      lowest = own;
    }
    return out;
  }

  float decayed(uint32_t bits, uint32_t steps) const {
    return std::bit_cast<float>(bits) * std::exp2(-static_cast<float>(steps) / half_life_);
  }
  uint32_t seen_once_more(uint32_t bits, uint32_t steps) const {
    if (evict_ == Evict::kLfu) return bits + (bits != kNone);
    return std::bit_cast<uint32_t>((steps == 0 ? std::bit_cast<float>(bits) : decayed(bits, steps)) + 1);
  }

  Buckets buckets_;
  int64_t groups_ = 0;
  int64_t max_rows_ = 0;
  Evict evict_ = Evict::kLru;
  float half_life_ = 1;
  int64_t ttl_ = 0;
  uint32_t expired_below_ = 0;
  std::vector<int64_t> pinned_;
  int64_t used_ = 0;
  Pages<uint8_t> digests_;
  Pages<Slot> slots_;
  Pages<uint32_t> counts_;
};

// Which steps are longer ago than a number of seconds.
class StepTimes {
 public:
  StepTimes() = default;
  explicit StepTimes(double seconds) : seconds_(seconds) {}

  // The first step that is not; `time` is that of the step, in seconds.
  uint32_t first_young(uint32_t step, double time) {
    if (times_.empty() || time >= times_.back().time + seconds_ / kKept) times_.push_back({time, uint64_t{step}});
    while (times_.size() > 1 && times_[1].time <= time - seconds_) times_.pop_front();
    return times_.front().time <= time - seconds_ ? static_cast<uint32_t>(times_.front().step) : 0;
  }

  bool empty() const { return times_.empty(); }
  template <class Write>
  void save(const Write& write) const {
    const uint64_t count = times_.size();
    write(&count, sizeof(count));
    for (const Moment& m : times_) write(&m, sizeof(m));
  }
  // The steps were the same everywhere, and the clocks nearly so: the first ones serve.
  template <class Read>
  void add(const Read& read) {
    const bool kept = times_.empty() && seconds_ > 0;
    uint64_t count = 0;
    read(&count, sizeof(count));
    for (; count > 0; --count) {
      Moment m{};
      read(&m, sizeof(m));
      if (kept) times_.push_back(m);
    }
  }

 private:
  static constexpr double kKept = 256;  // steps that are remembered, of the time
  struct Moment {
    double time;
    uint64_t step;
  };
  double seconds_ = 0;
  std::deque<Moment> times_;
};

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
