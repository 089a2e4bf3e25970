#include "tier.h"

#include <algorithm>
#include <cstring>

namespace flagships {
namespace {

using sdk::fail;
constexpr uint8_t kMostUses = 15;
constexpr uint64_t kTakesKept = 2;  // that rows on their way are kept for, when nothing has to be written

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

uint32_t RowsOnTheWay::put(int64_t id, bool changed, uint64_t take) {
  uint32_t place = places_.find(id);
  if (place == kNone) {
    if (free_.empty()) {
      free_.push_back(static_cast<uint32_t>(rows_.size()));
      rows_.emplace_back();
      records_.resize(rows_.size() * static_cast<size_t>(floats_));
    }
    place = free_.back();
    free_.pop_back();
    places_.insert(id, place);
  } else {
    changed_ -= rows_[place].changed;
  }
  rows_[place] = {id, take, rows_[place].version + 1, changed};
  changed_ += changed;
  return place;
}

void RowsOnTheWay::drop(uint32_t place) {
  changed_ -= rows_[place].changed;
  places_.erase(rows_[place].id);
  rows_[place].id = -1;
  rows_[place].changed = false;
  free_.push_back(place);
}

void RowsOnTheWay::written(uint32_t place) {
  changed_ -= rows_[place].changed;
  rows_[place].changed = false;
}

Tier::Tier(Options options, InnerInstance inner, const sdk::StartValues& start)
    : options_(std::move(options)),
      batch_rows_(static_cast<size_t>(std::clamp<int64_t>(options_.shape.slots / 8, 16, 4096))),
      inner_(std::move(inner)),
      start_(start),
      file_(options_.file, options_.name),
      slots_(static_cast<size_t>(options_.shape.slots)),
      on_the_way_(options_.record.floats()),
      stored_(static_cast<size_t>(options_.shape.rows + 63) / 64),
      rows_(options_.record) {
  for (size_t slot = slots_.size(); slot > 0; --slot) free_.push_back(static_cast<uint32_t>(slot - 1));
}

void Tier::pin(uint32_t slot, bool trains, std::vector<uint32_t>& pinned) {
  Slot& s = slots_[slot];
  if (s.take == takes_) return;
  s.take = takes_;
  ++s.pins;
  pinned.push_back(slot);
  if (trains && s.uses < kMostUses) ++s.uses;
}

void Tier::take(std::span<const int64_t> ids, bool trains, int64_t* slots, std::vector<uint32_t>& pinned) {
  Lock lock(mutex_);
  ++takes_;
  lookups_ += ids.size();
  missing_.clear();
  missing_ids_.clear();
  for (const int64_t id : ids) {
    if (const uint32_t slot = cached_.find(id); slot != IdMap::kNone) {
      ++hits_;
      pin(slot, trains, pinned);
      continue;
    }
    hits_ += on_the_way_.find(id) != RowsOnTheWay::kNone;
    if (missing_.insert(id, 0)) missing_ids_.push_back(id);
  }
  if (!missing_ids_.empty()) {
    Lock file(file_mutex_, std::defer_lock);
    const auto begin = std::chrono::steady_clock::now();
    const bool waits = needs_file();
    if (waits) {  // the locks are taken in one order; prefetch() may bring rows in between
      lock.unlock();
      file.lock();
      lock.lock();
    }
    make_room(missing_ids_.size());
    bring_in(trains, pinned);
    if (waits) wait_seconds_ += seconds_since(begin);
  }
  for (size_t i = 0; i < ids.size(); ++i) slots[i] = cached_.find(ids[i]);
  if (on_the_way_.changed() < 4 * batch_rows_) return;
  lock.unlock();  // nobody prefetches, or not fast enough
  const Lock file(file_mutex_);
  lock.lock();
  write_back(lock);
  drop_old();
}

bool Tier::needs_file() const {
  return std::any_of(missing_ids_.begin(), missing_ids_.end(),
                     [&](int64_t id) { return stored(id) && on_the_way_.find(id) == RowsOnTheWay::kNone; });
}

// A hand goes round the slots and takes away one use of each row that it passes: what has none left goes.
void Tier::make_room(size_t rows) {
  victims_.clear();
  const size_t wanted = rows - std::min(rows, free_.size());
  for (size_t passed = 0; victims_.size() < wanted; ++passed) {
    if (passed > (kMostUses + 2) * slots_.size()) {
      for (const uint32_t slot : victims_) slots_[slot].pins = 0;
      fail(TSR_RESOURCE_EXHAUSTED, "table \"", options_.name,
           "\": the steps under way need more rows at a time than the ", slots_.size(),
           " that its cache has room for: give it a larger cache_mib, or smaller batches");
    }
    Slot& s = slots_[hand_];
    if (s.id >= 0 && s.pins == 0) {
      if (s.uses > 0) {
        --s.uses;
      } else {
        s.pins = 1;  // chosen: not once more
        victims_.push_back(hand_);
      }
    }
    hand_ = hand_ + 1 == slots_.size() ? 0 : hand_ + 1;
  }
  std::sort(victims_.begin(), victims_.end());
  push_out(victims_);
}

void Tier::push_out(std::span<const uint32_t> slots) {
  for (size_t begin = 0; begin < slots.size();) {
    size_t end = begin + 1;
    while (end < slots.size() && slots[end] == slots[end - 1] + 1) ++end;
    const auto run = slots.subspan(begin, end - begin);
    if (std::any_of(run.begin(), run.end(), [&](uint32_t slot) { return slots_[slot].changed; }))
      inner_.export_rows(run[0], rows_.room(run.size()));
    for (size_t i = 0; i < run.size(); ++i) {
      Slot& s = slots_[run[i]];
      if (s.changed) rows_.get(i, on_the_way_.record(on_the_way_.put(s.id, true, takes_)));
      cached_.erase(s.id);
      s = {};
      free_.push_back(run[i]);
    }
    begin = end;
  }
  evictions_ += slots.size();
}

void Tier::bring_in(bool trains, std::vector<uint32_t>& pinned) {
  const size_t count = missing_ids_.size();
  from_file_.clear();
  new_ids_.clear();
  for (const int64_t id : missing_ids_) {
    if (on_the_way_.find(id) == RowsOnTheWay::kNone) (stored(id) ? from_file_ : new_ids_).push_back(id);
  }
  read_records(from_file_, records_);
  fill_starts(new_ids_, new_records_);
  tsr_rows& rows = rows_.room(count);
  const auto floats = static_cast<size_t>(options_.record.floats());
  size_t read = 0, made = 0;
  for (size_t i = 0; i < count; ++i) {
    rows_.id(i) = free_[free_.size() - 1 - i];
    const int64_t id = missing_ids_[i];
    if (const uint32_t place = on_the_way_.find(id); place != RowsOnTheWay::kNone)
      rows_.set(i, on_the_way_.record(place));
    else
      rows_.set(i, stored(id) ? records_.data() + floats * read++ : new_records_.data() + floats * made++);
  }
  inner_.import_rows(rows);
  for (const int64_t id : missing_ids_) {  // nothing fails any more
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].id = id;
    if (const uint32_t place = on_the_way_.find(id); place != RowsOnTheWay::kNone) {
      slots_[slot].changed = on_the_way_.row(place).changed;
      on_the_way_.drop(place);
    }
    cached_.insert(id, slot);
    pin(slot, trains, pinned);
  }
}

void Tier::release(std::span<const uint32_t> pinned) noexcept {
  const Lock lock(mutex_);
  for (const uint32_t slot : pinned) --slots_[slot].pins;
}

void Tier::changed(std::span<const uint32_t> pinned) {
  const Lock lock(mutex_);
  for (const uint32_t slot : pinned) slots_[slot].changed = true;
}

void Tier::prefetch(std::span<const int64_t> ids) {
  const Lock file(file_mutex_);
  Lock lock(mutex_);
  if (on_the_way_.changed() >= batch_rows_) write_back(lock);
  early_.clear();
  early_ids_.clear();
  early_new_.clear();
  for (const int64_t id : ids) {
    if (const uint32_t slot = cached_.find(id); slot != IdMap::kNone) {
      slots_[slot].uses = std::max<uint8_t>(slots_[slot].uses, 1);  // the step before should not push it out
    } else if (const uint32_t place = on_the_way_.find(id); place != RowsOnTheWay::kNone) {
      on_the_way_.touch(place, takes_);
    } else if (early_.insert(id, 0)) {
      (stored(id) ? early_ids_ : early_new_).push_back(id);
    }
  }
  drop_old();
  lock.unlock();
  std::sort(early_ids_.begin(), early_ids_.end());
  read_records(early_ids_, early_records_);
  fill_starts(early_new_, early_starts_);
  lock.lock();
  const auto floats = options_.record.floats();
  const auto arrive = [&](std::span<const int64_t> arrived, const float* records) {
    for (const int64_t id : arrived) {
      const bool there = cached_.find(id) != IdMap::kNone || on_the_way_.find(id) != RowsOnTheWay::kNone;
      if (!there) std::copy_n(records, floats, on_the_way_.record(on_the_way_.put(id, false, takes_)));
      records += floats;
    }
  };
  arrive(early_ids_, early_records_.data());
  arrive(early_new_, early_starts_.data());
}

void Tier::drop_old() {
  on_the_way_.for_each([&](uint32_t place) {
    const RowsOnTheWay::Row& row = on_the_way_.row(place);
    if (!row.changed && row.take + kTakesKept < takes_) on_the_way_.drop(place);
  });
}

void Tier::fill_starts(std::span<const int64_t> ids, std::vector<float>& records) const {
  const int64_t dim = options_.record.dim(), floats = options_.record.floats();
  records.resize(ids.size() * static_cast<size_t>(floats));
  if (ids.empty()) return;
  start_.fill(options_.number, ids, dim, records.data());
  for (auto i = static_cast<int64_t>(ids.size()) - 1; i >= 0; --i) {  // apart, from the last one on
    std::memmove(records.data() + i * floats, records.data() + i * dim, static_cast<size_t>(dim) * sizeof(float));
    options_.record.start_states(records.data() + i * floats);
  }
}

// With the file's lock, and perhaps the other.
void Tier::read_records(std::span<const int64_t> ids, std::vector<float>& records) {
  records.resize(ids.size() * static_cast<size_t>(options_.record.floats()));
  if (ids.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t bytes = options_.record.bytes();
  pieces_.clear();
  for (size_t i = 0; i < ids.size(); ++i)
    pieces_.push_back({reinterpret_cast<char*>(records.data()) + i * bytes, bytes, offset(ids[i])});
  file_.read(pieces_);
  reads_ += ids.size();
  read_seconds_ += seconds_since(begin);
}

// Of rows on their way, all that were changed; the second lock is given away while they are written.
void Tier::write_back(Lock& lock) {
  written_.clear();
  on_the_way_.for_each([&](uint32_t place) {
    const RowsOnTheWay::Row& row = on_the_way_.row(place);
    if (row.changed) written_.push_back({row.id, place, row.version});
  });
  std::sort(written_.begin(), written_.end(), [](const Written& a, const Written& b) { return a.id < b.id; });
  const auto floats = static_cast<size_t>(options_.record.floats());
  written_records_.resize(written_.size() * floats);
  pieces_.clear();
  for (size_t i = 0; i < written_.size(); ++i) {
    float* const record = written_records_.data() + i * floats;
    std::copy_n(on_the_way_.record(written_[i].place), floats, record);
    pieces_.push_back({reinterpret_cast<char*>(record), options_.record.bytes(), offset(written_[i].id)});
  }
  lock.unlock();
  try {
    file_.write(pieces_);
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  for (const Written& w : written_) {
    set_stored(w.id);
    const RowsOnTheWay::Row& row = on_the_way_.row(w.place);
    if (row.id == w.id && row.version == w.version) on_the_way_.written(w.place);
  }
  writes_ += written_.size();
}

void Tier::read(int64_t first, int64_t count, float* records) {
  const Lock file(file_mutex_);
  const Lock lock(mutex_);
  const int64_t floats = options_.record.floats();
  bool any = false;
  new_ids_.clear();
  for (int64_t id = first; id < first + count; ++id) {
    any |= stored(id);
    if (!stored(id) && cached_.find(id) == IdMap::kNone) new_ids_.push_back(id);
  }
  if (any) {
    const Piece all{reinterpret_cast<char*>(records), static_cast<uint64_t>(count) * options_.record.bytes(),
                    offset(first)};
    file_.read(std::span(&all, 1));
  }
  fill_starts(new_ids_, new_records_);
  for (size_t i = 0; i < new_ids_.size(); ++i)
    std::copy_n(new_records_.data() + static_cast<int64_t>(i) * floats, floats,
                records + (new_ids_[i] - first) * floats);
  for (int64_t id = first; id < first + count; ++id) {
    float* const record = records + (id - first) * floats;
    if (const uint32_t slot = cached_.find(id); slot != IdMap::kNone) {
      inner_.export_rows(slot, rows_.room(1));
      rows_.get(0, record);
    } else if (const uint32_t place = on_the_way_.find(id); place != RowsOnTheWay::kNone) {
      std::copy_n(on_the_way_.record(place), floats, record);
    }
  }
}

void Tier::write(std::span<const int64_t> ids, const float* records) {
  const Lock file(file_mutex_);
  const Lock lock(mutex_);
  const int64_t floats = options_.record.floats();
  pieces_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    const float* const record = records + static_cast<int64_t>(i) * floats;
    if (const uint32_t slot = cached_.find(ids[i]); slot != IdMap::kNone) {
      tsr_rows& one = rows_.room(1);
      rows_.id(0) = slot;
      rows_.set(0, record);
      inner_.import_rows(one);
      slots_[slot].changed = true;
      continue;
    }
    if (const uint32_t place = on_the_way_.find(ids[i]); place != RowsOnTheWay::kNone) on_the_way_.drop(place);
    // PieceIo only reads what it writes to a file.
    char* const bytes = const_cast<char*>(reinterpret_cast<const char*>(record));
    Piece piece{bytes, options_.record.bytes(), offset(ids[i])};
    if (!pieces_.empty() && pieces_.back().memory + pieces_.back().bytes == piece.memory &&
        pieces_.back().offset + pieces_.back().bytes == piece.offset) {
      pieces_.back().bytes += piece.bytes;
    } else {
      pieces_.push_back(piece);
    }
  }
  file_.write(pieces_);
  for (const int64_t id : ids) {
    if (cached_.find(id) == IdMap::kNone) set_stored(id);
  }
  writes_ += ids.size();
}

tsr_kernel_stats Tier::stats() const {
  const Lock file(file_mutex_);
  const Lock lock(mutex_);
  const tsr_kernel_stats inner = inner_.stats();
  tsr_kernel_stats out{};
  out.weight_bytes = inner.weight_bytes;
  out.state_bytes = inner.state_bytes;
  out.other_bytes = inner.other_bytes + on_the_way_.bytes() + cached_.bytes() + stored_.size() * sizeof(uint64_t) +
                    slots_.size() * sizeof(Slot);
  out.rows_in_use = static_cast<uint64_t>(options_.shape.rows);
  out.lookups = lookups_;
  out.hits = hits_;
  out.evictions = evictions_;
  out.storage_reads = reads_;
  out.storage_writes = writes_;
  out.read_seconds = read_seconds_;
  out.wait_seconds = wait_seconds_;
  return out;
}

}  // namespace flagships
