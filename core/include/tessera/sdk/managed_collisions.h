// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/managed_collisions.h - maps ids of any size to the rows of a smaller table: TorchRec's managed
// collisions, MCH (a sorted list of ids, by frequency or recency) and hash ZCH (lookups only).
//
// One object belongs to one table and is used by one thread at a time. tests/conformance/QUANTIZATION.md, section 7, is
// the specification; its cases come from TorchRec 1.9.2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/sdk/error.h"

namespace tessera::sdk {
inline namespace v1 {

enum class MchPolicy { kLfu, kLru, kDistanceLfu };
// Selects the ids between two evictions that may enter: all ids, ids more frequent than the mean, or ids more frequent
// than `threshold_skew_multiplier` times the mean.
enum class MchFilter { kNone, kAverage, kDynamic };

struct MchOptions {
  MchPolicy policy = MchPolicy::kLfu;
  MchFilter filter = MchFilter::kNone;
  double threshold_skew_multiplier = 10;  // for kDynamic
  double decay_exponent = 1;              // for kLru, kDistanceLfu
  int64_t zch_size = 0;                   // number of rows, 1 or more; ids without a row share the last one
  int64_t eviction_interval = 1;          // steps
  int64_t output_global_offset = 0;       // added to rows
};

class Mch {
 public:
  static constexpr int64_t kEmpty = INT64_MAX;  // id of an empty slot

  explicit Mch(const MchOptions& options) : options_(options) {
    if (options.zch_size < 1 || options.eviction_interval < 1)
      fail(TSR_INVALID_ARGUMENT, "zch_size is ", options.zch_size, " and eviction_interval ", options.eviction_interval,
           ", but both need 1 or more");
    slots_.resize(static_cast<size_t>(options.zch_size));
    for (size_t i = 0; i < slots_.size(); ++i)
      slots_[i] = {kEmpty, options.output_global_offset + static_cast<int64_t>(i), 0, 0};
  }

  struct Slot {
    int64_t raw;    // id
    int64_t row;    // includes output_global_offset
    int64_t count;  // number of sightings; for kLfu, kDistanceLfu
    int64_t last;   // step of the last sighting; for kLru, kDistanceLfu
  };
  std::span<const Slot> slots() const { return slots_; }  // ascending by id; the last one is never looked up
  int64_t open_slots() const {
    return std::count_if(slots_.begin(), slots_.end() - 1, [](const Slot& s) { return s.raw == kEmpty; });
  }

  // Call it in a training step before its lookup. True: ids entered in this step, and rows() of evicted ids now belong
  // to others, with their trained values (as in TorchRec).
  bool profile(std::span<const int64_t> ids) {
    ++step_;
    if (room_ < 0)
      room_ = static_cast<int64_t>(static_cast<double>(ids.size()) * static_cast<double>(options_.eviction_interval) *
                                   1.25);
    const auto taken = std::min<int64_t>(std::ssize(ids), room_ - std::ssize(history_));
    for (int64_t i = 0; i < taken; ++i) history_.push_back({ids[static_cast<size_t>(i)], 0, 0, step_});
    forget_changes();
    if (step_ - last_eviction_ < options_.eviction_interval) return false;
    last_eviction_ = step_;
    admit(seen(), true);
    history_.clear();
    return true;
  }
  // Rows that the last profile() or put() gave to other ids, including those of empty slots, and these ids.
  std::span<const int64_t> evicted_rows() const { return evicted_; }
  std::span<const int64_t> entered_ids() const { return entered_; }
  int64_t evictions() const { return evictions_; }  // number of ids that lost their rows so far
  // of ids without their own
  int64_t shared_row() const { return options_.output_global_offset + options_.zch_size - 1; }

  // Adds ids from another object with their sightings (row is not read). They take empty slots, or slots of ids that
  // rank lower.
  void put(std::vector<Slot> given) {
    forget_changes();
    for (const Slot& s : given) step_ = std::max(step_, s.last);
    admit(std::move(given), false);
  }
  // The state besides the slots.
  struct Memory {
    int64_t step = 0, last_eviction = 0;
    int64_t room = -1;          // capacity of the history; -1: unknown yet
    std::vector<Slot> history;  // ids since the last eviction, with their steps
  };
  Memory memory() const { return {step_, last_eviction_, room_, history_}; }
  // Adds the state of another shard of the table.
  void remember(const Memory& part) {
    step_ = std::max(step_, part.step);
    last_eviction_ = std::max(last_eviction_, part.last_eviction);
    room_ = std::max(room_, part.room);
    history_.insert(history_.end(), part.history.begin(), part.history.end());
  }

  // rows[i] belongs to ids[i].
  void remap(std::span<const int64_t> ids, std::span<int64_t> rows) const {
    const int64_t none = shared_row();
    for (size_t i = 0; i < ids.size(); ++i) {
      const Slot* slot = find(ids[i]);
      rows[i] = slot == nullptr ? none : slot->row;
    }
  }

 private:
  const Slot* find(int64_t id) const {
    const auto end = slots_.end() - 1;
    const auto at = std::lower_bound(slots_.begin(), end, id, [](const Slot& s, int64_t x) { return s.raw < x; });
    return at == end || at->raw != id ? nullptr : &*at;
  }

  // The history's ids that the filter accepts, ascending, with their counts and last steps.
  std::vector<Slot> seen() const {
    std::vector<Slot> all = history_;
    std::stable_sort(all.begin(), all.end(), [](const Slot& a, const Slot& b) { return a.raw < b.raw; });
    std::vector<Slot> out;
    for (const Slot& s : all) {
      if (out.empty() || out.back().raw != s.raw) out.push_back(s);
      ++out.back().count;
      out.back().last = s.last;
    }
    if (options_.filter == MchFilter::kNone || out.empty()) return out;
    const double mean = static_cast<double>(all.size()) / static_cast<double>(out.size());
    const double least = options_.filter == MchFilter::kAverage ? mean : mean * options_.threshold_skew_multiplier;
    std::erase_if(out, [&](const Slot& s) { return static_cast<double>(s.count) <= least; });
    return out;
  }

  float score(const Slot& s) const {
    if (options_.policy == MchPolicy::kLfu) return static_cast<float>(s.count);
    const float age = std::pow(static_cast<float>(step_ - s.last + 1), static_cast<float>(options_.decay_exponent));
    return options_.policy == MchPolicy::kLru ? -age : static_cast<float>(s.count) / age;
  }

  void forget_changes() {
    evicted_.clear();
    entered_.clear();
  }

  // Admits ids that score higher than present ones. With equal scores, slots precede new ids, and lower positions come
  // first. `add`: add sightings of ids that already have slots.
  void admit(std::vector<Slot> candidates, bool add) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Slot& a, const Slot& b) { return a.count > b.count; });
    std::erase_if(candidates, [&](const Slot& c) {
      Slot* slot = const_cast<Slot*>(find(c.raw));
      if (slot == nullptr) return false;
      slot->count = c.count + (add ? slot->count : 0);
      slot->last = c.last;
      return true;
    });
    slots_.back().count = INT64_MAX;
    slots_.back().last = step_;
    const size_t size = slots_.size();
    std::vector<float> scores;
    for (const Slot& s : slots_) scores.push_back(score(s));
    for (const Slot& c : candidates) scores.push_back(score(c));
    std::vector<size_t> ranked(scores.size());
    std::iota(ranked.begin(), ranked.end(), size_t{0});
    std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    size_t next = size;  // among the ranks after the first ones, where slots are given up
    for (size_t rank = 0; rank < size; ++rank) {
      if (ranked[rank] < size) continue;
      while (ranked[next] >= size) ++next;
      Slot& slot = slots_[ranked[next++]];
      const Slot& own = candidates[ranked[rank] - size];
      evicted_.push_back(slot.row);
      entered_.push_back(own.raw);
      evictions_ += slot.raw == kEmpty ? 0 : 1;
      slot = {own.raw, slot.row, own.count, own.last};
    }
    std::stable_sort(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.raw < b.raw; });
  }

  MchOptions options_;
  std::vector<Slot> slots_;
  std::vector<Slot> history_;  // ids since the last eviction; row is not used
  int64_t room_ = -1;          // of history_; known after the first step
  int64_t step_ = 0, last_eviction_ = 0, evictions_ = 0;
  std::vector<int64_t> evicted_, entered_;
};

// MurmurHash3's 128-bit mix of two words, folded to one.
constexpr uint64_t murmur_hash3_2x64(uint64_t x, uint64_t y, uint64_t seed) {
  const auto rotl = [](uint64_t v, int by) { return v << by | v >> (64 - by); };
  const auto mixed = [](uint64_t h) {
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 33;
  };
  constexpr uint64_t a = 0x87c37b91114253d5u, b = 0x4cf5ad432745937fu;
  uint64_t h1 = (rotl(seed ^ rotl(x * a, 31) * b, 27) + seed) * 5 + 0x52dce729u;
  uint64_t h2 = (rotl(seed ^ rotl(y * b, 33) * a, 31) + h1) * 5 + 0x38495ab5u;
  h1 ^= 16;
  h2 ^= 16;
  h1 += h2;
  h2 += h1;
  h1 = mixed(h1);
  h2 = mixed(h2);
  h1 += h2;
  h2 += h1;
  return h1 ^ h2;
}

// Hash ZCH's table of ids with open addressing: an id may be in `max_probe` consecutive slots of its bucket. It is only
// looked up here, because TorchRec trains it only on GPUs.
struct HashZchOptions {
  int64_t max_probe = 128;
  int64_t num_buckets = 1;        // equal parts of the table; an id's bucket is id mod num_buckets
  bool disable_fallback = false;  // a missing id is -1 instead of its first slot
};

// Returns the slot of an id. The id kEmptyIdentity (-1) belongs to an empty slot.
inline int64_t zero_collision_slot(std::span<const int64_t> identities, int64_t id, const HashZchOptions& options) {
  const int64_t slots = std::ssize(identities) / std::max<int64_t>(1, options.num_buckets);
  if (slots < 1) fail(TSR_INVALID_ARGUMENT, "a zero-collision table needs a slot for each of its buckets");
  const int64_t bucket = (id % options.num_buckets + options.num_buckets) % options.num_buckets;
  const auto first =
      static_cast<int64_t>(murmur_hash3_2x64(static_cast<uint64_t>(id), 0, 0) % static_cast<uint64_t>(slots));
  for (int64_t k = 0; k < std::min(options.max_probe, slots); ++k) {
    const int64_t at = bucket * slots + (first + k) % slots;
    if (identities[static_cast<size_t>(at)] == id) return at;
  }
  return options.disable_fallback ? -1 : bucket * slots + first;
}

}  // namespace v1
}  // namespace tessera::sdk
