// Export and import of the rows of virtual tables. Rows are exported by number, which is the order in which they were
// first needed, so that neighbours are read together.
#include <algorithm>
#include <cstring>

#include "virtual_table.h"

namespace extras {
namespace {

constexpr int64_t kRowsAtOnce = 4096;

// Returns the next rows that have ids, from `cursor` on. The shared row comes last.
template <class Wanted>
std::vector<int64_t> next_rows(const Table& ids, uint64_t& cursor, int64_t most, const Wanted& wanted) {
  std::vector<int64_t> out;
  const Index& index = ids.index();
  const auto end = static_cast<uint64_t>(index.rows_taken());
  for (; cursor <= end && std::ssize(out) < most; ++cursor) {
    const uint32_t row = cursor < end ? static_cast<uint32_t>(cursor) : ids.shared_row();
    const bool there = cursor < end ? index.find(ids.key(index.head(row).id)) == row : ids.has_shared();
    if (there && wanted(row)) out.push_back(row);
  }
  return out;
}

}  // namespace

void VirtualTables::check(const VirtualTable& table, const tsr_rows& rows) const {
  if (rows.num_states != 0 && rows.num_states != optimizer_.num_states())
    fail(TSR_INVALID_ARGUMENT, "table \"", table.ids.shape().name, "\" has ", optimizer_.num_states(),
         " optimizer states, not ", rows.num_states);
}

template <class Wanted>
void VirtualTables::export_some(uint32_t t, uint64_t& cursor, tsr_rows& rows, const Wanted& wanted) {
  const VirtualTable& table = tables_.at(t);
  const RecordShape& record = rows_->record(t);
  const Index& index = table.ids.index();
  check(table, rows);
  const std::vector<int64_t> own = next_rows(table.ids, cursor, std::min(numel(*rows.ids), kRowsAtOnce), wanted);
  records_.resize(own.size() * static_cast<size_t>(record.floats()));
  if (!own.empty()) rows_->read_records(t, own, records_.data());
  rows.count = std::ssize(own);
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto row = static_cast<uint32_t>(own[static_cast<size_t>(i)]);
    data_as<int64_t>(*rows.ids)[i] = index.head(row).id;
    const float* from = records_.data() + i * record.floats();
    std::copy_n(from, table.dim, data_as<float>(*rows.weights) + i * table.dim);
    from += table.dim;
    for (uint32_t k = 0; k < rows.num_states; from += record.width(k++))
      std::copy_n(from, record.width(k), data_as<float>(*rows.states[k]) + i * record.width(k));
    if (rows.extra == nullptr) continue;
    const Table::Extra extra{index.head(row).step, index.count_bits(row)};
    std::memcpy(static_cast<char*>(rows.extra) + i * rows.extra_stride, &extra, table.ids.extra_bytes());
  }
}

void VirtualTables::export_rows(uint32_t t, uint64_t& cursor, tsr_rows& rows) {
  export_some(t, cursor, rows, [](uint32_t) { return true; });
}

void VirtualTables::export_changed(uint32_t follower, uint32_t t, uint64_t& cursor, tsr_rows& rows) {
  export_some(t, cursor, rows, [&](uint32_t row) { return tables_[t].ids.has_changed(follower, row); });
}

// Imports all ids first, because that decides which of them keep rows.
void VirtualTables::import_rows(uint32_t t, const tsr_rows& rows) {
  VirtualTable& table = tables_.at(t);
  const RecordShape& record = rows_->record(t);
  check(table, rows);
  const auto ids = elements<const int64_t>(*rows.ids, "ids").first(static_cast<size_t>(rows.count));
  const auto floats = static_cast<size_t>(record.floats());
  const bool keeps_states = rows.num_states < record.states();
  const std::lock_guard lock(mutex_);
  const auto row_of = [&](int64_t id) { return table.ids.find(id); };
  std::vector<uint32_t> before;
  for (const int64_t id : ids) before.push_back((rows.flags & TSR_IMPORT_REPLACE) == 0 ? row_of(id) : kNone);
  tsr_rows alone = read_struct(rows);
  alone.num_states = 0;
  table.ids.import_rows(alone);
  if ((rows.flags & TSR_IMPORT_REPLACE) != 0) clear_absent(table);
  records_.resize(floats);
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t row = row_of(ids[i]);
    if (row == kNone) continue;
    float* to = records_.data();
    if (keeps_states && before[i] == row)
      rows_->read_records(t, {&row, 1}, to);
    else
      record.start_states(to);
    std::copy_n(data_as<float>(*rows.weights) + static_cast<int64_t>(i) * table.dim, table.dim, to);
    to += table.dim;
    for (uint32_t k = 0; k < rows.num_states; to += record.width(k++))
      std::copy_n(data_as<float>(*rows.states[k]) + static_cast<int64_t>(i) * record.width(k), record.width(k), to);
    rows_->write_records(t, {&row, 1}, records_.data());
  }
}

tsr_kernel_stats VirtualTables::stats(uint32_t t) {
  const tsr_kernel_stats ids = tables_.at(t).ids.stats();
  tsr_kernel_stats out = rows_->stats(t);
  out.struct_size = sizeof(out);
  out.extra_bytes = ids.extra_bytes;
  out.other_bytes += ids.other_bytes;
  out.rows_in_use = ids.rows_in_use;
  out.evictions = ids.evictions;
  out.hits = hits_[t];
  out.lookups = lookups_[t];
  return out;
}

}  // namespace extras
