// Export and import of the rows of dynamic tables.
#include "rows.h"

namespace extras {

template <class Move>
void Table::move_row(const tsr_rows& rows, int64_t i, uint32_t own, const Move& move) const {
  move(row(own), data_as<float>(*rows.weights) + i * shape_.dim, shape_.dim);
  for (uint32_t k = 0; k < rows.num_states; ++k)
    move(state(k, own), data_as<float>(*rows.states[k]) + i * width(k), width(k));
}

// `cursor` is the next slot to look at; the shared row follows the last slot.
template <class Wanted>
void Table::export_some(uint64_t& cursor, tsr_rows& rows, const Wanted& wanted) const {
  const int64_t room = numel(*rows.ids);
  const auto slots = static_cast<uint64_t>(index_.num_slots());
  rows.count = 0;
  for (; cursor <= slots && rows.count < room; ++cursor) {
    const uint32_t row = cursor < slots ? index_.row_at(cursor) : shared_used_ ? shared_row_ : kNone;
    if (row == kNone || !wanted(row)) continue;
    data_as<int64_t>(*rows.ids)[rows.count] = index_.head(row).id;
    move_row(rows, rows.count, row, [](const float* own, float* out, int64_t n) { std::copy_n(own, n, out); });
    if (rows.extra != nullptr) {
      const Extra extra{index_.head(row).step, index_.count_bits(row)};
      std::memcpy(static_cast<char*>(rows.extra) + rows.count * rows.extra_stride, &extra, extra_bytes());
    }
    ++rows.count;
  }
}

void Table::export_rows(uint64_t& cursor, tsr_rows& rows) const {
  export_some(cursor, rows, [](uint32_t) { return true; });
}

template <class Visit>
void Table::each_row(const Visit& visit) const {
  for (uint64_t slot = 0; slot < static_cast<uint64_t>(index_.num_slots()); ++slot) {
    const uint32_t row = index_.row_at(slot);
    if (row != kNone) visit(slot, row);
  }
}

// Starts the shared row with zeros, and its states with their start values.
void Table::begin_shared() {
  shared_used_ = false;
  shared_changed_ = 0;
  if (shared_row_ == kNone) return;
  index_.head(shared_row_).id = TSR_SHARED_ROW_ID;
  for (uint32_t k = 0; k < optimizer_.num_states(); ++k)
    std::fill_n(state(k, shared_row_), width(k), static_cast<float>(optimizer_.state(k).start));
}

void Table::clear() {
  int64_t per_row = 0;
  for (uint32_t k = 0; k < optimizer_.num_states(); ++k)
    per_row += optimizer_.state(k).kind == TSR_STATE_PER_ELEMENT ? 0 : 1;
  const auto most = static_cast<uint64_t>(Index::most_rows(spread_) + Index::rows_behind(shape_.policy));
  shared_row_ = shape_.policy.absent == Absent::kShared ? static_cast<uint32_t>(most - 1) : kNone;
  index_ = Index(spread_, shape_.policy, per_row);
  memory_for_ = 0;
  times_ = StepTimes(shape_.policy.ttl_seconds);
  const bool counts = shape_.policy.admit_after > 1 || shape_.policy.tinylfu;
  sketch_ = counts ? Sketch(spread_.buckets.count, spread_.buckets.slots) : Sketch();
  weights_ = Pages<float>(most * static_cast<uint64_t>(shape_.dim));
  states_.clear();
  char* beside_ids = index_.row_states();
  for (uint32_t k = 0; k < optimizer_.num_states(); ++k) {
    if (optimizer_.state(k).kind == TSR_STATE_PER_ELEMENT) {
      states_.push_back(Pages<float>(most * static_cast<uint64_t>(shape_.dim)));
      state_places_[k] = {reinterpret_cast<char*>(states_.back().data()),
                          static_cast<uint64_t>(shape_.dim) * sizeof(float)};
    } else {
      state_places_[k] = {beside_ids, index_.row_states_stride()};
      beside_ids += sizeof(float);
    }
  }
  begin_shared();
}

void Table::mark(uint32_t follower) {
  std::vector<int64_t> ids(static_cast<size_t>(index_.rows_taken()), ChangedRows::kNoId);
  each_row([&](uint64_t, uint32_t row) { ids[row] = index_.head(row).id; });
  if (shared_used_) ids.push_back(TSR_SHARED_ROW_ID);
  changed_.start(follower, std::move(ids));
  shared_changed_ &= ~(1u << follower);
}

RowChanges Table::changes(uint32_t follower) const {
  RowChanges out;
  out.changed = shared_used_ && shared_has_changed(follower) ? 1 : 0;
  each_row([&](uint64_t, uint32_t row) { out.changed += changed_.has(follower, row) ? 1 : 0; });
  for (const int64_t id : changed_.ids(follower)) out.removed += id != ChangedRows::kNoId && is_gone(id) ? 1 : 0;
  return out;
}

void Table::export_changed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const {
  export_some(cursor, rows, [&](uint32_t row) { return has_changed(follower, row); });
}

// `cursor` is the next row of the mark to look at.
void Table::export_removed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const {
  const std::vector<int64_t>& ids = changed_.ids(follower);
  const int64_t room = numel(*rows.ids);
  rows.count = 0;
  for (; cursor < ids.size() && rows.count < room; ++cursor) {
    if (ids[cursor] != ChangedRows::kNoId && is_gone(ids[cursor]))
      data_as<int64_t>(*rows.ids)[rows.count++] = ids[cursor];
  }
}

// Finds a row for an imported id, if the id ranks above the lowest one of its bucket; otherwise returns kNone.
uint32_t Table::row_for(int64_t id, const Extra* given) {
  if (id == TSR_SHARED_ROW_ID) {  // it is dropped if this table has no shared row
    if (shared_row_ != kNone) use_shared(given == nullptr ? 0 : given->step);
    return shared_row_;
  }
  const Key own = key(id);
  const Extra extra =
      given == nullptr ? Extra{0, index_.first_count(1)} : Extra{given->step, index_.own_count(given->count_bits)};
  uint32_t row = index_.find(own);
  use_memory(true);
  const bool restored = row == kNone || given != nullptr;
  if (row == kNone) {
    bool evicted = false;
    row = index_.take_back(own, extra.step, extra.count_bits, evicted);
    evictions_ += evicted ? 1 : 0;
    given_up_ += evicted ? 1 : 0;
    if (row != kNone) begin(row, id);
  }
  if (row != kNone && restored) index_.restore(own, row, extra.step, extra.count_bits);
  return row;
}

void Table::import_rows(const tsr_rows& rows) {
  if ((rows.flags & TSR_IMPORT_REPLACE) != 0) clear();
  const auto ids = elements<const int64_t>(*rows.ids, "ids");
  for (int64_t i = 0; i < rows.count; ++i) {
    Extra extra{};
    if (rows.extra != nullptr)
      std::memcpy(&extra, static_cast<const char*>(rows.extra) + i * rows.extra_stride, extra_bytes());
    const uint32_t row = row_for(ids[static_cast<size_t>(i)], rows.extra == nullptr ? nullptr : &extra);
    if (row == kNone) continue;
    note_change(row);
    move_row(rows, i, row, [](float* own, const float* in, int64_t n) { std::copy_n(in, n, own); });
  }
}

void Table::save_extra(const ExtraBytes& to) const {
  if (sketch_.empty() && times_.empty()) return;
  sketch_.save([&](const void* bytes, uint64_t size) { to.write(bytes, size); });
  times_.save([&](const void* bytes, uint64_t size) { to.write(bytes, size); });
}

void Table::add_extra(const ExtraBytes& from) {
  sketch_.add([&](void* bytes, uint64_t size) { from.read(bytes, size); });
  times_.add([&](void* bytes, uint64_t size) { from.read(bytes, size); });
}

tsr_table_ages Table::ages() const {
  tsr_table_ages out{};
  out.struct_size = sizeof(out);
  out.capacity = static_cast<uint64_t>(shape_.capacity + Index::rows_behind(shape_.policy));
  uint32_t newest = shared_used_ ? index_.head(shared_row_).step : 0;
  const auto count = [&](uint64_t, uint32_t row) { ++out.rows[std::bit_width(newest - index_.head(row).step)]; };
  each_row([&](uint64_t, uint32_t row) { newest = std::max(newest, index_.head(row).step); });
  each_row(count);
  if (shared_used_) count(0, shared_row_);
  return out;
}

tsr_kernel_stats Table::stats() const {
  tsr_kernel_stats out{};
  out.struct_size = sizeof(out);
  out.extra_bytes = extra_bytes();
  out.rows_in_use = static_cast<uint64_t>(index_.used() + (shared_used_ ? 1 : 0));
  out.weight_bytes = out.rows_in_use * static_cast<uint64_t>(shape_.dim) * sizeof(float);
  out.state_bytes = out.rows_in_use * shape_.row_bytes - out.weight_bytes;
  const auto unused = static_cast<uint64_t>(index_.rows_taken() - index_.used());
  out.other_bytes = index_.bytes() + unused * shape_.row_bytes + sketch_.bytes() + changed_.bytes();
  out.evictions = evictions_ - given_up_;  // evictions by imported rows do not count
  return out;
}

}  // namespace extras
