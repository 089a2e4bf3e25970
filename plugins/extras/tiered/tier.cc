#include "tier.h"

#include <algorithm>
#include <cstring>

namespace extras {
namespace {

using sdk::fail;
constexpr uint32_t kTakesKept = 2;  // rows on their way that need not be written are kept for this many takes

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
int64_t rows_of(const std::vector<TierTable>& tables) { return tables.back().first + tables.back().rows; }
bool before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }  // the count of takes wraps around

}  // namespace

Tier::Tier(Options options, sdk::InnerInstance inner, const sdk::StartValues& start)
    : options_(std::move(options)),
      batch_rows_(static_cast<size_t>(std::clamp<int64_t>(options_.slots / 8, 16, 4096))),
      inner_(std::move(inner)),
      start_(start),
      log_(LogShape(rows_of(options_.tables), options_.record.bytes())),
      file_(options_.file, options_.tables[0].name, log_.shape().block_bytes),
      at_(static_cast<size_t>(rows_of(options_.tables)), word(kStarts, 0)),
      uses_(at_.size()),
      slots_(static_cast<size_t>(options_.slots)),
      on_the_way_(options_.record.floats()),
      counts_(options_.tables.size()),
      rows_(options_.record) {
  for (size_t slot = slots_.size(); slot > 0; --slot) free_.push_back(static_cast<uint32_t>(slot - 1));
}

size_t Tier::table_of(int64_t row) const {
  size_t t = options_.tables.size() - 1;
  while (t > 0 && options_.tables[t].first > row) --t;
  return t;
}

void Tier::pin(uint32_t slot, bool trains, std::vector<uint32_t>& pinned) {
  Slot& s = slots_[slot];
  if (s.take == takes_) return;
  s.take = takes_;
  ++s.pins;
  pinned.push_back(slot);
  uint8_t& uses = uses_[s.row];
  if (trains && uses < UINT8_MAX) ++uses;
}

// Halves the use counts of a few rows in each take. All are halved once while each slot is used kUsesPerSlot times.
void Tier::age(size_t used) {
  constexpr int64_t kUsesPerSlot = 40;
  const int64_t rows = std::ssize(uses_);
  const int64_t count = std::min(rows, static_cast<int64_t>(static_cast<double>(used) * static_cast<double>(rows) /
                                                            static_cast<double>(kUsesPerSlot * std::ssize(slots_))));
  for (int64_t i = 0; i < count; ++i) {
    uint8_t& uses = uses_[static_cast<size_t>(aged_)];
    uses = static_cast<uint8_t>(uses / 2);
    aged_ = aged_ + 1 == rows ? 0 : aged_ + 1;
  }
}

void Tier::take(std::span<const int64_t> rows, bool trains, int64_t* slots, std::vector<uint32_t>& pinned) {
  constexpr size_t kSlotsAhead = 16;
  Lock lock(mutex_);
  ++takes_;
  if (rows.empty()) return;
  Counts& counts = counts_[table_of(rows[0])];
  counts.lookups += rows.size();
  missing_.clear();
  missing_rows_.clear();
  const size_t first = pinned.size();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kWordsAhead < rows.size()) __builtin_prefetch(&at(rows[i + kWordsAhead]));
    if (i + kSlotsAhead < rows.size()) {
      const uint32_t ahead = at(rows[i + kSlotsAhead]);
      if (where(ahead) == kCached) __builtin_prefetch(&slots_[number(ahead)], 1);
      __builtin_prefetch(&uses_[static_cast<size_t>(rows[i + kSlotsAhead])], 1);
    }
    const uint32_t w = at(rows[i]);
    if (where(w) == kCached) {
      slots[i] = number(w);
      pin(number(w), trains, pinned);
      continue;
    }
    slots[i] = -1;
    if (where(w) != kOnTheWay) ++counts.misses;
    if (missing_.insert(rows[i], 0)) missing_rows_.push_back(rows[i]);
  }
  if (!missing_rows_.empty()) {
    Lock file(read_mutex_, std::defer_lock);
    const auto begin = std::chrono::steady_clock::now();
    const bool waits = needs_file();
    if (waits) {  // locks are taken in a fixed order, so this one is released; prefetch() may bring rows meanwhile
      lock.unlock();
      file.lock();
      lock.lock();
    }
    make_room(missing_rows_.size());
    bring_in(trains, pinned);
    if (waits) wait_seconds_ += seconds_since(begin);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (slots[i] < 0) slots[i] = number(at(rows[i]));
    }
  }
  if (trains) age(pinned.size() - first);
  if (on_the_way_.changed() < 4 * batch_rows_) return;
  lock.unlock();  // write_back() is not fast enough, so this thread helps
  write_back();
}

bool Tier::needs_file() {
  return std::any_of(missing_rows_.begin(), missing_rows_.end(), [&](int64_t r) { return where(at(r)) == kStored; });
}

// CLOCK eviction: of the next few candidates, takes the least used. Returns kNoRow if none may be evicted.
uint32_t Tier::victim() {
  constexpr size_t kSeen = 8;
  for (const bool spares : {true, false}) {  // first spares rows that the next step wants
    uint32_t best = kNoRow;
    for (size_t passed = 0, seen = 0; passed < slots_.size() && seen < kSeen; ++passed) {
      const uint32_t slot = hand_;
      hand_ = hand_ + 1 == slots_.size() ? 0 : hand_ + 1;
      const Slot& s = slots_[slot];
      if (s.row == kNoRow || s.pins > 0 || (spares && !before(s.wanted, takes_))) continue;
      ++seen;
      if (best == kNoRow || uses_[s.row] < uses_[slots_[best].row]) best = slot;
    }
    if (best != kNoRow) return best;
  }
  return kNoRow;
}

void Tier::make_room(size_t rows) {
  victims_.clear();
  const size_t wanted = rows - std::min(rows, free_.size());
  while (victims_.size() < wanted) {
    const uint32_t slot = victim();
    if (slot == kNoRow) {
      for (const uint32_t chosen : victims_) slots_[chosen].pins = 0;
      fail(TSR_RESOURCE_EXHAUSTED, "table \"", table(table_of(missing_rows_[0])).name,
           "\": the steps in progress need more rows than the ", slots_.size(),
           " that fit in its cache: set a larger cache_mib, or use smaller batches");
    }
    slots_[slot].pins = 1;  // so that it is not chosen again
    victims_.push_back(slot);
  }
  std::sort(victims_.begin(), victims_.end());
  push_out(victims_);
}

void Tier::push_out(std::span<const uint32_t> slots) {
  records_.resize(static_cast<size_t>(options_.record.floats()));
  const auto changed = [&](uint32_t slot) { return slots_[slot].changed; };
  const auto count = static_cast<size_t>(std::count_if(slots.begin(), slots.end(), changed));
  tsr_rows& rows = rows_.room(count);
  for (size_t i = 0, k = 0; i < slots.size(); ++i) {
    if (changed(slots[i])) rows_.id(k++) = slots[i];
  }
  if (count > 0) inner_.read_rows(rows);
  size_t next = 0;
  for (const uint32_t slot : slots) {
    Slot& s = slots_[slot];
    ++counts_[table_of(s.row)].evictions;
    if (s.changed) {
      rows_.get(next++, records_.data());
      put_on_the_way(s.row, true, RowLog::kNowhere, records_.data());
    } else {
      at(s.row) = s.place == RowLog::kNowhere ? word(kStarts, 0) : word(kStored, s.place);
    }
    s = {};
    free_.push_back(slot);
  }
}

void Tier::put_on_the_way(int64_t row, bool changed, uint32_t place, const float* record) {
  at(row) = word(kOnTheWay, on_the_way_.put({static_cast<uint32_t>(row), place, takes_, 0, changed}, record));
}

void Tier::bring_in(bool trains, std::vector<uint32_t>& pinned) {
  const size_t count = missing_rows_.size();
  const auto floats = static_cast<size_t>(options_.record.floats());
  from_file_.clear();
  new_rows_.clear();
  for (const int64_t row : missing_rows_) {
    if (where(at(row)) == kStored) from_file_.push_back(row);
    if (where(at(row)) == kStarts) new_rows_.push_back(row);
  }
  records_.resize(std::max<size_t>(from_file_.size(), 1) * floats);
  stored_.clear();
  for (size_t i = 0; i < from_file_.size(); ++i) {
    stored_.push_back({number(at(from_file_[i])), records_.data() + i * floats});
    ++counts_[table_of(from_file_[i])].reads;
  }
  read_stored(stored_, false);
  fill_starts(new_rows_, new_records_);
  tsr_rows& rows = rows_.room(count);
  size_t read = 0, made = 0;
  for (size_t i = 0; i < count; ++i) {
    rows_.id(i) = free_[free_.size() - 1 - i];
    const uint32_t w = at(missing_rows_[i]);
    if (where(w) == kOnTheWay)
      rows_.set(i, on_the_way_.record(number(w)));
    else
      rows_.set(i, where(w) == kStored ? records_.data() + floats * read++ : new_records_.data() + floats * made++);
  }
  inner_.import_rows(rows);
  for (const int64_t row : missing_rows_) {  // nothing fails from here on
    const uint32_t slot = free_.back(), w = at(row);
    free_.pop_back();
    Slot& s = slots_[slot];
    s.row = static_cast<uint32_t>(row);
    if (where(w) == kStored) s.place = number(w);
    if (where(w) == kOnTheWay) {
      s.changed = on_the_way_.row(number(w)).changed;
      s.place = on_the_way_.row(number(w)).place;
      on_the_way_.drop(number(w));
    }
    at(row) = word(kCached, slot);
    pin(slot, trains, pinned);
  }
}

uint64_t Tier::in_memory(std::span<const int64_t> rows) {
  const Lock lock(mutex_);
  uint64_t out = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kWordsAhead < rows.size()) __builtin_prefetch(&at(rows[i + kWordsAhead]));
    const Where there = where(at(rows[i]));
    out += there == kCached || there == kOnTheWay ? 1 : 0;
  }
  return out;
}

void Tier::release(std::span<const uint32_t> pinned) noexcept {
  const Lock lock(mutex_);
  for (size_t i = 0; i < pinned.size(); ++i) {
    prefetch_slot(pinned, i);
    --slots_[pinned[i]].pins;
  }
}

void Tier::changed(std::span<const uint32_t> pinned) {
  const Lock lock(mutex_);
  for (size_t i = 0; i < pinned.size(); ++i) {
    prefetch_slot(pinned, i);
    Slot& s = slots_[pinned[i]];
    s.changed = true;
    log_.drop(s.place);
    s.place = RowLog::kNowhere;
    if (marks_) marks_.add(s.row);
  }
}

void Tier::prefetch(std::span<const int64_t> rows) {
  const Lock file(read_mutex_);
  Lock lock(mutex_);
  drop_old();
  early_.clear();
  early_rows_.clear();
  early_new_.clear();
  for (const int64_t row : rows) {
    const uint32_t w = at(row);
    if (where(w) == kCached) {
      slots_[number(w)].wanted = takes_ + 1;  // so that the take before does not evict it
    } else if (where(w) == kOnTheWay) {
      on_the_way_.touch(number(w), takes_);
    } else if (early_.insert(row, 0)) {
      (where(w) == kStored ? early_rows_ : early_new_).push_back(row);
    }
  }
  const auto floats = static_cast<size_t>(options_.record.floats());
  early_records_.resize(early_rows_.size() * floats);
  early_stored_.clear();
  early_places_.clear();
  for (size_t i = 0; i < early_rows_.size(); ++i) {
    early_places_.push_back(number(at(early_rows_[i])));
    early_stored_.push_back({early_places_.back(), early_records_.data() + i * floats});
    ++counts_[table_of(early_rows_[i])].reads;
  }
  lock.unlock();
  read_stored(early_stored_, false);
  fill_starts(early_new_, early_starts_);
  lock.lock();
  // A lookup may have been faster, or the record may have moved.
  for (size_t i = 0; i < early_rows_.size(); ++i) {
    const uint32_t w = at(early_rows_[i]);
    if (where(w) == kStored && number(w) == early_places_[i])
      put_on_the_way(early_rows_[i], false, number(w), early_records_.data() + i * floats);
  }
  for (size_t i = 0; i < early_new_.size(); ++i) {
    if (where(at(early_new_[i])) == kStarts)
      put_on_the_way(early_new_[i], false, RowLog::kNowhere, early_starts_.data() + i * floats);
  }
}

void Tier::drop_old() {
  for (uint32_t i = 0; i < on_the_way_.places(); ++i) {
    const RowsOnTheWay::Row& row = on_the_way_.row(i);
    if (row.row == kNoRow || row.changed || !before(row.take + kTakesKept, takes_)) continue;
    at(row.row) = row.place == RowLog::kNowhere ? word(kStarts, 0) : word(kStored, row.place);
    on_the_way_.drop(i);
  }
}

void Tier::fill_starts(std::span<const int64_t> rows, std::vector<float>& records) const {
  const int64_t dim = options_.record.dim(), floats = options_.record.floats();
  records.resize(rows.size() * static_cast<size_t>(floats));
  std::vector<int64_t> own;
  for (size_t begin = 0; begin < rows.size();) {  // table by table
    const TierTable& table = options_.tables[table_of(rows[begin])];
    own.clear();
    float* const out = records.data() + static_cast<int64_t>(begin) * floats;
    for (; begin < rows.size() && rows[begin] >= table.first && rows[begin] < table.first + table.rows; ++begin)
      own.push_back(rows[begin] - table.first);
    start_.fill(table.number, own, dim, out);
    for (int64_t i = std::ssize(own) - 1; i >= 0; --i) {  // moves them apart, starting with the last
      std::memmove(out + i * floats, out + i * dim, static_cast<size_t>(dim) * sizeof(float));
      options_.record.start_states(out + i * floats);
    }
  }
}

// Call it with read_mutex_, or with mutex_ as well. With `runs`, which is for many rows, it reads neighbouring rows
// together.
void Tier::read_stored(std::span<Stored> rows, bool runs) {
  if (rows.empty()) return;
  constexpr uint64_t kRunBytes = 256 << 10, kMostBytes = 4 << 20;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t bytes = options_.record.bytes(), block_bytes = log_.shape().block_bytes;
  const uint32_t in_block = log_.shape().in_block;
  pieces_.clear();
  if (!runs) {
    for (const Stored& s : rows) pieces_.push_back({reinterpret_cast<char*>(s.record), bytes, log_.offset(s.place)});
    file_.read(pieces_);
    read_seconds_ += seconds_since(begin);
    return;
  }
  std::sort(rows.begin(), rows.end(), [](const Stored& a, const Stored& b) { return a.place < b.place; });
  std::vector<const char*> from(rows.size());
  for (size_t done = 0; done < rows.size();) {
    char* to = run_.room(kMostBytes);
    size_t i = done;
    pieces_.clear();
    uint32_t block = 0, first = 0;  // the last and the first block of the last piece
    for (; i < rows.size(); ++i) {
      const uint32_t own = rows[i].place / in_block;
      const bool same = !pieces_.empty() && own == block;
      const bool next = !pieces_.empty() && own == block + 1 && pieces_.back().bytes + block_bytes <= kRunBytes;
      if (!same && to + block_bytes > run_.data() + kMostBytes && i > done) break;
      if (!same && next) {
        pieces_.back().bytes += block_bytes;
      } else if (!same) {
        first = own;
        pieces_.push_back({to, block_bytes, own * block_bytes});
      }
      if (!same) to += block_bytes;
      block = own;
      from[i] = pieces_.back().memory + log_.at(rows[i].place, first);
    }
    file_.read(pieces_);
    for (; done < i; ++done) std::memcpy(rows[done].record, from[done], bytes);
  }
}

void Tier::read(std::span<const int64_t> rows, float* records) {
  const Lock file(read_mutex_);
  const Lock lock(mutex_);
  const int64_t floats = options_.record.floats();
  stored_.clear();
  new_rows_.clear();
  std::vector<size_t> new_at;
  for (size_t i = 0; i < rows.size(); ++i) {
    float* const record = records + static_cast<int64_t>(i) * floats;
    const uint32_t w = at(rows[i]);
    if (where(w) == kStarts) {
      new_rows_.push_back(rows[i]);
      new_at.push_back(i);
    }
    if (where(w) == kStored) stored_.push_back({number(w), record});
    if (where(w) == kOnTheWay) std::copy_n(on_the_way_.record(number(w)), floats, record);
    if (where(w) != kCached) continue;
    tsr_rows& cached = rows_.room(1);
    rows_.id(0) = number(w);
    inner_.read_rows(cached);
    rows_.get(0, record);
  }
  read_stored(stored_, true);
  fill_starts(new_rows_, new_records_);
  for (size_t i = 0; i < new_rows_.size(); ++i)
    std::copy_n(new_records_.data() + static_cast<int64_t>(i) * floats, floats,
                records + static_cast<int64_t>(new_at[i]) * floats);
}

void Tier::write(std::span<const int64_t> rows, const float* records) {
  Lock lock(mutex_);
  const int64_t floats = options_.record.floats();
  if (marks_) marks_.add(rows.data(), std::ssize(rows));
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* const record = records + static_cast<int64_t>(i) * floats;
    const uint32_t w = at(rows[i]);
    if (where(w) == kCached) {
      tsr_rows& one = rows_.room(1);
      rows_.id(0) = number(w);
      rows_.set(0, record);
      inner_.import_rows(one);
      Slot& s = slots_[number(w)];
      s.changed = true;
      log_.drop(s.place);
      s.place = RowLog::kNowhere;
      continue;
    }
    if (where(w) == kStored) log_.drop(number(w));
    if (where(w) == kOnTheWay) {
      log_.drop(on_the_way_.row(number(w)).place);
      on_the_way_.drop(number(w));
    }
    put_on_the_way(rows[i], true, RowLog::kNowhere, record);
  }
  if (on_the_way_.changed() < batch_rows_) return;
  lock.unlock();
  write_back();
}

tsr_kernel_stats Tier::stats(size_t t) const {
  const Lock file(read_mutex_);
  const Lock lock(mutex_);
  const Counts& counts = counts_[t];
  tsr_kernel_stats out{};
  out.rows_in_use = static_cast<uint64_t>(table(t).rows);
  out.lookups = counts.lookups;
  out.hits = counts.lookups - counts.misses;
  out.evictions = counts.evictions;
  out.storage_reads = counts.reads;
  out.storage_writes = counts.writes;
  if (t > 0) return out;  // the first table reports the figures that the tables share
  const tsr_kernel_stats inner = inner_.stats();
  out.weight_bytes = inner.weight_bytes;
  out.state_bytes = inner.state_bytes;
  out.other_bytes = inner.other_bytes + on_the_way_.bytes() + log_.bytes() + uses_.size() + marks_.bytes() +
                    at_.size() * sizeof(uint32_t) + slots_.size() * (sizeof(Slot) + sizeof(uint32_t));
  out.read_seconds = read_seconds_;
  out.wait_seconds = wait_seconds_;
  return out;
}

}  // namespace extras
