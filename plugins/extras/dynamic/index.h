// Maps ids to rows. A bucket is a few cache lines, each with the tags of 20 slots and the positions of their rows. Each
// slot has a row; the rows of four neighbouring slots are contiguous and are created with the first of them. A row's
// head has its id, its last sighting, its count, and the states that occur once per row. A lookup therefore touches one
// cache line more than a lookup in a plain table.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "key.h"
#include "pages.h"
#include "policy.h"

namespace extras {

constexpr uint32_t kNone = ~0u;
// The largest count of sightings. Whole numbers up to it are below the bits of every float from 1 on. Decayed counts
// are such floats, so the two kinds can be distinguished.
constexpr uint32_t kMostCounted = std::bit_cast<uint32_t>(1.0f) - 1;

// The tags of 20 slots, 0 for an empty slot. For each group of four slots, whose rows are contiguous, the first row +
// 1, or 0 if none has been used. `low` is a lower bound of the rows' ranks (Index::rank).
struct alignas(64) Line {
  static constexpr int64_t kEntries = 20, kTogether = 4;
  uint16_t tags[kEntries];
  uint32_t pieces[kEntries / kTogether];
  uint32_t low;

  [[gnu::always_inline]] uint32_t row(int64_t entry) const {
    return pieces[entry / kTogether] - 1 + static_cast<uint32_t>(entry % kTogether);
  }
  // Bit i is set if the tag of slot i equals `wanted`.
  [[gnu::always_inline]] uint32_t equal(uint16_t wanted) const {
#if defined(__SSE2__)
    const __m128i all = _mm_set1_epi16(static_cast<int16_t>(wanted));
    const auto* own = reinterpret_cast<const __m128i*>(tags);
    const __m128i first =
        _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(own), all), _mm_cmpeq_epi16(_mm_load_si128(own + 1), all));
    const __m128i last = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_loadl_epi64(own + 2), all), _mm_setzero_si128());
    return static_cast<uint32_t>(_mm_movemask_epi8(first)) | (static_cast<uint32_t>(_mm_movemask_epi8(last)) & 0xf)
                                                                 << 16;
#else
    uint32_t out = 0;
    for (int64_t i = 0; i < kEntries; ++i) out |= static_cast<uint32_t>(tags[i] == wanted) << i;
    return out;
#endif
  }
};
static_assert(sizeof(Line) == 64);

class Index {
 public:
  // The head of a row. If sightings are not counted, a state may use the place of `count`.
  struct Head {
    int64_t id;
    uint32_t step;   // step of the last sighting
    uint32_t count;  // sightings as the policy counts them
  };
  static constexpr uint64_t kBytes = 24;  // the most bytes per slot, in addition to its row and states

  Index() = default;
  // `row_states`: floats of state per row, without states per element.
  Index(const Spread& spread, const Policy& policy, int64_t row_states)
      : spread_(spread),
        entries_((spread.buckets.slots + spread.lines - 1) / spread.lines),
        evict_(policy.evict),
        tinylfu_(policy.tinylfu),
        half_life_(static_cast<float>(policy.half_life)),
        ttl_(policy.ttl),
        pinned_(policy.pinned),
        states_at_(policy.evict == Evict::kLru ? offsetof(Head, count) : sizeof(Head)),
        stride_((states_at_ + static_cast<uint64_t>(row_states) * sizeof(float) + 7) / 8 * 8),
        states_bytes_(static_cast<uint64_t>(row_states) * sizeof(float)),
        lines_(static_cast<uint64_t>(spread.buckets.count * spread.lines), Touched::kAtOnce),
        heads_(static_cast<uint64_t>(most_rows(spread) + rows_behind(policy)) * stride_) {}

  // Row numbers are below this.
  static int64_t most_rows(const Spread& spread) {
    const int64_t slots = spread.buckets.slots, entries = (slots + spread.lines - 1) / spread.lines;
    const int64_t full = entries == 0 ? 0 : slots / entries;
    return spread.buckets.count * kTogether * (full * pieces(entries) + pieces(slots - full * entries));
  }
  // The number of rows after these that belong to no slot. Ids without a row may share one, row most_rows().
  static int64_t rows_behind(const Policy& policy) { return policy.absent == Absent::kShared ? 1 : 0; }
  // The number of lines for a bucket with this number of slots.
  static int64_t lines_for(int64_t slots) { return std::max<int64_t>(1, (slots + kEntries - 1) / kEntries); }

  int64_t num_slots() const { return spread_.buckets.count * spread_.buckets.slots; }  // slot numbers are below this
  int64_t used() const { return used_; }
  int64_t rows_taken() const { return int64_t{pieces_} * kTogether; }  // including neighbours that are unused
  uint64_t bytes() const {
    return static_cast<uint64_t>(spread_.buckets.count * spread_.lines) * sizeof(Line) +
           static_cast<uint64_t>(rows_taken()) * (stride_ - states_bytes_);
  }
  // Calls Pages::use() for rows below a number.
  void use(int64_t rows, bool soon) { heads_.use(static_cast<uint64_t>(rows) * stride_, soon); }
  const Spread& spread() const { return spread_; }
  Head& head(uint32_t row) const { return *reinterpret_cast<Head*>(heads_.data() + row * stride_); }
  // The states that occur once per row: the first row's address, and the bytes from one row to the next.
  char* row_states() const { return heads_.data() + states_at_; }
  uint64_t row_states_stride() const { return stride_; }
  // The row of a slot, or kNone if the slot is empty. Slots are numbered in the order of buckets.
  uint32_t row_at(uint64_t slot) const {
    const Place at = place(slot);
    return at.line->tags[at.entry] == 0 ? kNone : at.line->row(at.entry);
  }

  const Line* lines() const { return lines_.data(); }
  char* heads() const { return heads_.data(); }
  uint64_t head_stride() const { return stride_; }
  // True if touch() is only a store to the head, because rows do not expire and counts do not decay.
  bool touches_plainly() const { return ttl_ == 0 && expired_below_ == 0 && evict_ != Evict::kDecayed; }
  bool counts() const { return evict_ != Evict::kLru; }

  // The row that find() will most likely return; kNone if there is none. It compares tags but not ids.
  uint32_t guess(const Hashed& ids, int64_t i) const {
    const Line* const bucket = lines_.data() + ids.first[i];
    const int64_t number = ids.first[i] / static_cast<uint32_t>(spread_.lines);
    for (int64_t k = 0, l = ids.home[i]; k < spread_.lines; ++k) {
      const uint32_t match = bucket[l].equal(static_cast<uint16_t>(ids.tag[i]));
      if (match != 0) return bucket[l].row(std::countr_zero(match));
      if ((bucket[l].equal(0) & valid(number, l)) != 0) return kNone;
      if (++l == spread_.lines) l = 0;
    }
    return kNone;
  }
  uint32_t find(const Key& key) const {
    const Line* const bucket = lines_.data() + key.bucket * spread_.lines;
    for (int64_t k = 0, l = spread_.home(key.hash); k < spread_.lines; ++k) {
      for (uint32_t match = bucket[l].equal(Spread::tag(key.hash)); match != 0; match &= match - 1) {
        const uint32_t row = bucket[l].row(std::countr_zero(match));
        if (head(row).id == key.id) return row;
      }
      // An empty slot ends the search, because slots are never freed.
      if ((bucket[l].equal(0) & valid(key.bucket, l)) != 0) return kNone;
      if (++l == spread_.lines) l = 0;
    }
    return kNone;
  }

  // prefetch_home() and prefetch_head() prefetch the lines that find() reads, one after the other. They are always
  // inlined, because GCC 12 drops calls of functions that only prefetch.
  [[gnu::always_inline]] void prefetch_home(const Key& key) const { __builtin_prefetch(&home_of(key)); }
  [[gnu::always_inline]] void prefetch_head(const Key& key) const {
    const uint32_t match = home_of(key).equal(Spread::tag(key.hash));
    if (match != 0) __builtin_prefetch(&head(home_of(key).row(std::countr_zero(match))), 1);
  }

  // Notes a sighting in a step. Returns true if the row had expired and begins anew.
  bool touch(uint32_t row, uint32_t step) {
    Head& own = head(row);
    const uint32_t before = std::exchange(own.step, step);
    const bool gone = expired(before, step);
    if (evict_ != Evict::kLru) own.count = seen_once_more(gone ? 0 : own.count, step - before);
    return gone;
  }
  bool expired(uint32_t last, uint32_t step) const {
    return last < expired_below_ || (ttl_ > 0 && int64_t{step} - int64_t{last} > ttl_);
  }
  // Rows that were last sighted before this step are expired.
  void expire_below(uint32_t step) { expired_below_ = std::max(expired_below_, step); }
  bool pinned(int64_t id) const { return std::binary_search(pinned_.begin(), pinned_.end(), id); }

  // Finds a row for an id that has none and has `sightings`: in an empty slot, or else in the slot of the lowest-ranked
  // id that this step has not seen. Returns kNone if there is none or, with TinyLFU, if that id counts more. Sets
  // `evicted` if the row belonged to another id.
  uint32_t take(const Key& key, uint32_t step, uint32_t sightings, bool& evicted) {
    Place at = empty_slot(key);
    evicted = at.line == nullptr;
    if (evicted) at = victim(key, step, step);
    if (at.line == nullptr) return kNone;
    if (evicted && tinylfu_ && !pinned(key.id)) {
      const Head& own = head(at.line->row(at.entry));
      if (score(own.step, own.count, step) > static_cast<float>(sightings)) return kNone;
    }
    const bool first = !evicted && at.line->equal(0) == (uint32_t{1} << kEntries) - 1;
    uint32_t low = first ? kNone : at.line->low;
    if (evicted) low = rank_holds() ? lowest(*at.line, at.entry) : 0;
    const uint32_t row = give(key, at, evicted);
    sight(row, step, first_count(sightings));
    at.line->low = std::min(low, rank(head(row)));
    return row;
  }
  // Does the same for an imported row, which keeps its sightings. Returns kNone if all rows of its bucket rank above
  // it.
  uint32_t take_back(const Key& key, uint32_t step, uint32_t count_bits, bool& evicted) {
    Place at = empty_slot(key);
    evicted = at.line == nullptr;
    if (evicted) {
      at = victim(key, step, kNone);
      const Head own{key.id, step, count_bits};
      if (at.line == nullptr || (!pinned(key.id) && !goes_first(at.line->row(at.entry), own))) return kNone;
    }
    return give(key, at, evicted);
  }
  // Finds the row of a given slot. Returns kNone if the slot is not in the id's bucket, has an id, or does not exist.
  // restore() must follow, as after take_back().
  uint32_t put(const Key& key, uint64_t slot) {
    if (slot >= static_cast<uint64_t>(num_slots())) return kNone;
    if (static_cast<int64_t>(slot) / spread_.buckets.slots != key.bucket) return kNone;
    if (static_cast<int64_t>(slot) % spread_.buckets.slots >= spread_.buckets.slots_of(key.bucket)) return kNone;
    const Place at = place(slot);
    return at.line->tags[at.entry] != 0 ? kNone : give(key, at, false);
  }
  // Prefetches what victim() will read: first the bucket's lines, later the rows with which it will most likely begin.
  void prefetch_lines(const Key& key) const {
    for (int64_t l = 0; l < spread_.lines; ++l) __builtin_prefetch(lines_.data() + key.bucket * spread_.lines + l);
  }
  void prefetch_heads(const Key& key) const {
    const Line* const bucket = lines_.data() + key.bucket * spread_.lines;
    const Line* lowest = bucket;
    for (int64_t l = 0; l < spread_.lines; ++l) {
      if ((bucket[l].equal(0) & valid(key.bucket, l)) != 0) return;  // no eviction will be needed
      if (bucket[l].low < lowest->low) lowest = bucket + l;
    }
    for (int64_t p = 0; p < pieces(entries_) && lowest->pieces[p] != 0; ++p) {
      const char* at = heads_.data() + lowest->row(p * kTogether) * stride_;
      __builtin_prefetch(at);
      __builtin_prefetch(at + (kTogether - 1) * stride_);
    }
  }

  uint32_t count_bits(uint32_t row) const { return evict_ == Evict::kLru ? 0 : head(row).count; }
  // Restores the saved state of a row.
  void restore(const Key& key, uint32_t row, uint32_t step, uint32_t count_bits) {
    sight(row, step, count_bits);
    Line* const bucket = lines_.data() + key.bucket * spread_.lines;
    for (int64_t l = 0; l < spread_.lines; ++l) bucket[l].low = std::min(bucket[l].low, rank(head(row)));
  }
  // Converts a count of another policy.
  uint32_t own_count(uint32_t bits) const {
    if (evict_ == Evict::kDecayed && bits <= kMostCounted) return std::bit_cast<uint32_t>(static_cast<float>(bits));
    if (evict_ == Evict::kLfu && bits > kMostCounted)
      return static_cast<uint32_t>(std::clamp(std::bit_cast<float>(bits), 1.0f, 1e9f));
    return bits;
  }
  uint32_t first_count(uint32_t sightings) const {
    return evict_ == Evict::kDecayed ? std::bit_cast<uint32_t>(static_cast<float>(sightings)) : sightings;
  }

 private:
  static constexpr int64_t kEntries = Line::kEntries, kTogether = Line::kTogether;
  struct Place {
    Line* line;  // nullptr if there is none
    int64_t entry;
  };
  const Line& home_of(const Key& key) const {
    return lines_[static_cast<uint64_t>(key.bucket * spread_.lines + spread_.home(key.hash))];
  }
  static int64_t pieces(int64_t entries) { return (entries + kTogether - 1) / kTogether; }
  // A mask of valid slots: a bucket's last line may have fewer slots than the others, or none.
  uint32_t valid(int64_t bucket, int64_t line) const {
    const int64_t there = std::clamp<int64_t>(spread_.buckets.slots_of(bucket) - line * entries_, 0, entries_);
    return (uint32_t{1} << there) - 1;
  }
  Place place(uint64_t slot) const {
    const auto slots = static_cast<uint64_t>(spread_.buckets.slots), entries = static_cast<uint64_t>(entries_);
    const uint64_t line = slot / slots * static_cast<uint64_t>(spread_.lines) + slot % slots / entries;
    return {lines_.data() + line, static_cast<int64_t>(slot % slots % entries)};
  }
  Place empty_slot(const Key& key) const {
    Line* const bucket = lines_.data() + key.bucket * spread_.lines;
    for (int64_t k = 0, l = spread_.home(key.hash); k < spread_.lines; ++k) {
      const uint32_t empty = bucket[l].equal(0) & valid(key.bucket, l);
      if (empty != 0) return {bucket + l, std::countr_zero(empty)};
      if (++l == spread_.lines) l = 0;
    }
    return {nullptr, 0};
  }
  uint32_t give(const Key& key, const Place& at, bool evicted) {
    uint32_t& piece = at.line->pieces[at.entry / kTogether];
    if (piece == 0) piece = static_cast<uint32_t>(kTogether) * pieces_++ + 1;
    used_ += evicted ? 0 : 1;
    at.line->tags[at.entry] = Spread::tag(key.hash);
    const uint32_t row = at.line->row(at.entry);
    head(row).id = key.id;
    return row;
  }

  void sight(uint32_t row, uint32_t step, uint32_t count_bits) {
    head(row).step = step;
    if (evict_ != Evict::kLru) head(row).count = count_bits;
  }

  // The rank of a row. Rows of lower rank are evicted first; rows of equal rank in any order. A sighting never lowers
  // it. It may only be used if rank_holds().
  uint32_t rank(const Head& own) const {
    constexpr uint32_t kSteps = 28, kCounted = (1 << (32 - kSteps)) - 1;
    if (evict_ == Evict::kLru) return own.step;
    return own.count >= kCounted ? kCounted << kSteps : own.count << kSteps | std::min(own.step, (1u << kSteps) - 1);
  }
  bool rank_holds() const { return ttl_ == 0 && expired_below_ == 0 && evict_ != Evict::kDecayed; }
  // The lowest rank of a line's rows, without entry `without`.
  uint32_t lowest(const Line& line, int64_t without) const {
    uint32_t out = kNone;
    for (int64_t entry = 0; entry < entries_; ++entry) {
      if (line.tags[entry] == 0 || entry == without) continue;
      const Head& own = head(line.row(entry));
      if (pinned_.empty() || !pinned(own.id)) out = std::min(out, rank(own));
    }
    return out;
  }

  // Rows with the lowest score are evicted first: expired rows, then those that the policy chooses.
  float score(uint32_t last, uint32_t count_bits, uint32_t step) const {
    if (expired(last, step)) return -1;
    if (evict_ == Evict::kLfu) return static_cast<float>(count_bits);
    return evict_ == Evict::kDecayed ? decayed(count_bits, std::max(step, last) - last) : 0;
  }
  // If scores are equal, the row that was not seen for longer is evicted first, then the row with the lower hash.
  static bool goes_first(const Head& a, const Head& b) {
    return a.step != b.step ? a.step < b.step : scrambled(a.id) < scrambled(b.id);
  }
  // True if a row's id is evicted before an id that has no row.
  bool goes_first(uint32_t row, const Head& other) const {
    const Head& own = head(row);
    const uint32_t now = std::max(own.step, other.step);
    const float score_of_own = score(own.step, count_bits(row), now), others = score(other.step, other.count, now);
    return score_of_own != others ? score_of_own < others : goes_first(own, other);
  }
  struct Victim {
    Place at{nullptr, 0};
    const Head* head = nullptr;
    float score = 0;
  };
  // Finds the entry to evict; rows that were sighted in step `spared` stay. If rank_holds(), lines are searched from
  // the lowest `low` on, until the rest are above the candidate. That is mostly one or two lines of six.
  Place victim(const Key& key, uint32_t step, uint32_t spared) {
    Line* const bucket = lines_.data() + key.bucket * spread_.lines;
    Victim found;
    if (!rank_holds()) {
      for (int64_t l = 0; l < spread_.lines; ++l) look_through<false>(bucket[l], step, spared, found);
      return found.at;
    }
    for (uint32_t left = (uint32_t{1} << spread_.lines) - 1; left != 0;) {
      int64_t next = std::countr_zero(left);
      for (uint32_t others = left & (left - 1); others != 0; others &= others - 1) {
        if (bucket[std::countr_zero(others)].low < bucket[next].low) next = std::countr_zero(others);
      }
      left &= ~(uint32_t{1} << next);
      if (found.head != nullptr && bucket[next].low > rank(*found.head)) break;
      bucket[next].low = look_through<true>(bucket[next], step, spared, found);
    }
    return found.at;
  }
  // Looks for a better victim in a line. With kRanked, returns the lowest rank of the line; otherwise 0.
  template <bool kRanked>
  uint32_t look_through(Line& line, uint32_t step, uint32_t spared, Victim& found) const {
    uint32_t low = kRanked ? kNone : 0;
    for (int64_t entry = 0; entry < entries_; ++entry) {
      if (line.tags[entry] == 0) continue;
      const uint32_t row = line.row(entry);
      const Head& own = head(row);
      if (!pinned_.empty() && pinned(own.id)) continue;
      if constexpr (kRanked) low = std::min(low, rank(own));
      if (own.step == spared) continue;
      const float own_score = score(own.step, count_bits(row), step);
      if (found.head != nullptr &&
          (own_score > found.score || (own_score == found.score && !goes_first(own, *found.head))))
        continue;
      found = {{&line, entry}, &own, own_score};
    }
    return low;
  }

  float decayed(uint32_t bits, uint32_t steps) const {
    return std::bit_cast<float>(bits) * std::exp2(-static_cast<float>(steps) / half_life_);
  }
  uint32_t seen_once_more(uint32_t bits, uint32_t steps) const {
    if (evict_ == Evict::kLfu) return bits + (bits < kMostCounted);
    return std::bit_cast<uint32_t>((steps == 0 ? std::bit_cast<float>(bits) : decayed(bits, steps)) + 1);
  }

  Spread spread_;
  int64_t entries_ = 0;  // slots per line, except a bucket's last
  Evict evict_ = Evict::kLru;
  bool tinylfu_ = false;
  float half_life_ = 1;
  int64_t ttl_ = 0;
  uint32_t expired_below_ = 0;
  std::vector<int64_t> pinned_;
  uint64_t states_at_ = 0, stride_ = sizeof(Head), states_bytes_ = 0;  // states_at_: offset of the states in a head
  int64_t used_ = 0;
  uint32_t pieces_ = 0;  // number of groups of four slots that have rows
  Pages<Line> lines_;
  Pages<char> heads_;
};

}  // namespace extras
