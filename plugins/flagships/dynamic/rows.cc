// Rows on their way in and out.
#include "rows.h"

namespace flagships {
namespace {

// The head of a saved table. Each row follows: where it was, its weights and its states.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t num_states;
  int64_t dim;
  int64_t slots;
  int64_t rows;
};
struct Saved {
  int64_t id;
  uint32_t slot;
  Table::Extra extra;
  uint32_t reserved;
};
constexpr char kMagic[8] = {'T', 'S', 'R', 'D', 'Y', 'N', 'A', '\0'};

void write(const tsr_stream_io& io, const void* bytes, uint64_t size) {
  Call call;
  call.check(io.write(io.self, bytes, size, call.err()));
}
void read(const tsr_stream_io& io, void* bytes, uint64_t size) {
  Call call;
  call.check(io.read(io.self, bytes, size, call.err()));
}

}  // namespace

template <class Move>
void Table::move_row(const tsr_rows& rows, int64_t i, uint32_t slot, const Move& move) const {
  const uint32_t own = index_.slot(slot).row;
  move(row(own), data_as<float>(*rows.weights) + i * shape_.dim, shape_.dim);
  for (uint32_t k = 0; k < rows.num_states; ++k)
    move(state(k, own), data_as<float>(*rows.states[k]) + i * width(k), width(k));
}

// The cursor is the next slot to look at.
void Table::export_rows(uint64_t& cursor, tsr_rows& rows) const {
  const int64_t room = numel(*rows.ids);
  rows.count = 0;
  for (; cursor < static_cast<uint64_t>(index_.num_slots()) && rows.count < room; ++cursor) {
    const auto slot = static_cast<uint32_t>(cursor);
    if (!index_.is_used(slot)) continue;
    data_as<int64_t>(*rows.ids)[rows.count] = index_.slot(slot).id;
    move_row(rows, rows.count, slot, [](const float* own, float* out, int64_t n) { std::copy_n(own, n, out); });
    if (rows.extra != nullptr) {
      const Extra extra{index_.slot(slot).step, index_.count_bits(slot)};
      std::memcpy(static_cast<char*>(rows.extra) + rows.count * rows.extra_stride, &extra, extra_bytes());
    }
    ++rows.count;
  }
}

uint32_t Table::place_of(int64_t id) {
  const Key own = key(id);
  uint32_t slot = index_.find(own);
  if (slot != kNone) return slot;
  bool evicted = false;
  slot = index_.take(own, 0, 1, evicted);
  if (slot == kNone)
    fail(TSR_RESOURCE_EXHAUSTED, "table \"", shape_.name, "\" has no room for the row of id ", id,
         ": its bucket is full of rows that were never trained, give the table more rows");
  evictions_ += evicted ? 1 : 0;
  begin(index_.slot(slot).row, id);
  return slot;
}

void Table::import_rows(const tsr_rows& rows) {
  const auto ids = elements<const int64_t>(*rows.ids, "ids");
  for (int64_t i = 0; i < rows.count; ++i) {
    const uint32_t slot = place_of(ids[static_cast<size_t>(i)]);
    move_row(rows, i, slot, [](float* own, const float* in, int64_t n) { std::copy_n(in, n, own); });
    if (rows.extra == nullptr) continue;
    Extra extra{};
    std::memcpy(&extra, static_cast<const char*>(rows.extra) + i * rows.extra_stride, extra_bytes());
    index_.restore(slot, extra.step, extra.count_bits);
  }
}

void Table::save(const tsr_stream_io& io) const {
  Header header{{}, 1, optimizer_.num_states(), shape_.dim, index_.num_slots(), index_.used()};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  write(io, &header, sizeof(header));
  for (int64_t i = 0; i < index_.num_slots(); ++i) {
    const auto slot = static_cast<uint32_t>(i);
    if (!index_.is_used(slot)) continue;
    const uint32_t own = index_.slot(slot).row;
    const Saved saved{index_.slot(slot).id, slot, {index_.slot(slot).step, index_.count_bits(slot)}, 0};
    write(io, &saved, sizeof(saved));
    write(io, row(own), static_cast<uint64_t>(shape_.dim) * sizeof(float));
    for (uint32_t k = 0; k < header.num_states; ++k)
      write(io, state(k, own), static_cast<uint64_t>(width(k)) * sizeof(float));
  }
}

void Table::load(const tsr_stream_io& io) {
  Header header{};
  read(io, &header, sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != 1)
    fail(TSR_DATA_LOSS, "table \"", shape_.name, "\": these are no rows that kernel dynamic has saved");
  if (header.dim != shape_.dim || header.num_states != optimizer_.num_states())
    fail(TSR_FAILED_PRECONDITION, "table \"", shape_.name, "\": rows of ", header.dim, " columns and ",
         header.num_states, " states were saved, but the table has ", shape_.dim, " and ", optimizer_.num_states());
  clear();
  for (int64_t i = 0; i < header.rows; ++i) {
    Saved saved{};
    read(io, &saved, sizeof(saved));
    if (saved.id < 0 || saved.id >= shape_.rows)
      fail(TSR_DATA_LOSS, "table \"", shape_.name, "\" has ids below ", shape_.rows, ", but a saved row has id ",
           saved.id);
    // A table of another size gives the row a slot as to a new one.
    const bool as_saved = header.slots == index_.num_slots() && index_.put(key(saved.id), saved.slot);
    const uint32_t slot = as_saved ? saved.slot : place_of(saved.id), own = index_.slot(slot).row;
    index_.restore(slot, saved.extra.step, saved.extra.count_bits);
    read(io, row(own), static_cast<uint64_t>(shape_.dim) * sizeof(float));
    for (uint32_t k = 0; k < header.num_states; ++k)
      read(io, state(k, own), static_cast<uint64_t>(width(k)) * sizeof(float));
  }
}

tsr_kernel_stats Table::stats() const {
  tsr_kernel_stats out{};
  out.struct_size = sizeof(out);
  out.extra_bytes = extra_bytes();
  out.rows_in_use = static_cast<uint64_t>(index_.used());
  out.weight_bytes = out.rows_in_use * static_cast<uint64_t>(shape_.dim) * sizeof(float);
  out.state_bytes = out.rows_in_use * shape_.row_bytes - out.weight_bytes;
  out.other_bytes = static_cast<uint64_t>(index_.num_slots()) * Index::kBytes;
  out.evictions = evictions_;
  return out;
}

}  // namespace flagships
