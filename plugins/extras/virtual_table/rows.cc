// Export and import of the rows of virtual tables. Rows are exported by number, which is the order in which they were
// first needed, so that neighbours are read together.
#include <algorithm>
#include <cstring>

#include "virtual_table.h"

namespace extras {
namespace {

constexpr int64_t kRowsAtOnce = 4096;

// Follows the ids: the number of rows, each of which is an id and its record.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t reserved;
  int64_t floats;
  int64_t rows;
};
constexpr char kMagic[8] = {'T', 'S', 'R', 'V', 'I', 'R', 'T', '\0'};

void write(const tsr_stream_io& io, const void* bytes, uint64_t size) {
  Call call;
  call.check(io.write(io.self, bytes, size, call.err()));
}
void read(const tsr_stream_io& io, void* bytes, uint64_t size) {
  Call call;
  call.check(io.read(io.self, bytes, size, call.err()));
}

// The next rows that ids have, from `cursor` on; the row shared by others comes last.
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
  if (!own.empty()) rows_->read_rows(t, own, records_.data());
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

// Imports the ids first, because only then is it known which of them keep rows.
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
      rows_->read_rows(t, {&row, 1}, to);
    else
      record.start_states(to);
    std::copy_n(data_as<float>(*rows.weights) + static_cast<int64_t>(i) * table.dim, table.dim, to);
    to += table.dim;
    for (uint32_t k = 0; k < rows.num_states; to += record.width(k++))
      std::copy_n(data_as<float>(*rows.states[k]) + static_cast<int64_t>(i) * record.width(k), record.width(k), to);
    rows_->write_rows(t, {&row, 1}, records_.data());
  }
}

void VirtualTables::save(uint32_t t, const tsr_stream_io& io) {
  const VirtualTable& table = tables_.at(t);
  const int64_t floats = rows_->record(t).floats();
  table.ids.save(io);
  Header header{{}, 1, 0, floats, table.ids.index().used() + (table.ids.has_shared() ? 1 : 0)};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  write(io, &header, sizeof(header));
  for (uint64_t cursor = 0;;) {
    const std::vector<int64_t> own = next_rows(table.ids, cursor, kRowsAtOnce, [](uint32_t) { return true; });
    if (own.empty()) return;
    records_.resize(own.size() * static_cast<size_t>(floats));
    rows_->read_rows(t, own, records_.data());
    for (size_t i = 0; i < own.size(); ++i) {
      write(io, &table.ids.index().head(static_cast<uint32_t>(own[i])).id, sizeof(int64_t));
      write(io, records_.data() + static_cast<int64_t>(i) * floats, static_cast<uint64_t>(floats) * sizeof(float));
    }
  }
}

void VirtualTables::load(uint32_t t, const tsr_stream_io& io) {
  VirtualTable& table = tables_.at(t);
  const int64_t floats = rows_->record(t).floats();
  const std::lock_guard lock(mutex_);
  table.ids.load(io);
  clear_absent(table);
  Header header{};
  read(io, &header, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != 1)
    fail(TSR_DATA_LOSS, "table \"", table.ids.shape().name,
         "\": these are no rows that kernel virtual_table has saved");
  if (header.floats != floats)
    fail(TSR_FAILED_PRECONDITION, "table \"", table.ids.shape().name, "\": rows and states of ", header.floats,
         " numbers were saved, but the table has ", floats);
  records_.resize(static_cast<size_t>(floats));
  for (int64_t i = 0; i < header.rows; ++i) {
    int64_t id = 0;
    read(io, &id, sizeof(id));
    read(io, records_.data(), records_.size() * sizeof(float));
    const int64_t row = table.ids.find(id);
    if (row != kNone) rows_->write_rows(t, {&row, 1}, records_.data());
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
