// A table's rows: export, import, and reset.
#include "rows.h"

#include <tessera/sdk/structs.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace extras {
namespace {

using sdk::data_as;
using sdk::elements;
using sdk::fail;
using sdk::Mch;

constexpr int64_t kRowsAtOnce = 4096;

// Writes a list with its length. When reading, a saved length is trusted only block by block.
void write_slots(const sdk::ExtraBytes& to, std::span<const Mch::Slot> slots) {
  const uint64_t count = slots.size();
  to.write(&count, sizeof(count));
  to.write(slots.data(), count * sizeof(Mch::Slot));
}
std::vector<Mch::Slot> read_slots(const sdk::ExtraBytes& from) {
  uint64_t count = 0;
  from.read(&count, sizeof(count));
  std::vector<Mch::Slot> out;
  while (out.size() < count) {
    const size_t some = std::min<size_t>(count - out.size(), kRowsAtOnce), before = out.size();
    out.resize(before + some);
    from.read(out.data() + before, some * sizeof(Mch::Slot));
  }
  return out;
}

}  // namespace

TableShape::TableShape(const tsr_kernel_table& table)
    : name(table.name), ids((table.flags & TSR_TABLE_ANY_ID) != 0 ? INT64_MAX : table.rows), dim(table.dim) {
  sdk::Options options(table.options == nullptr ? "{}" : table.options);
  const auto wrong = [&](const char* key, const auto& value, const char* known) {
    fail(TSR_INVALID_ARGUMENT, "table \"", name, "\": ", key, " is ", value, ", but ", known);
  };
  const std::string policy = options.string("policy", "lfu"), filter = options.string("filter", "none");
  if (policy == "lru")
    mch.policy = sdk::MchPolicy::kLru;
  else if (policy == "distance_lfu")
    mch.policy = sdk::MchPolicy::kDistanceLfu;
  else if (policy != "lfu")
    wrong("policy", '"' + policy + '"', "there are lfu, lru and distance_lfu");
  if (filter == "average")
    mch.filter = sdk::MchFilter::kAverage;
  else if (filter == "dynamic")
    mch.filter = sdk::MchFilter::kDynamic;
  else if (filter != "none")
    wrong("filter", '"' + filter + '"', "there are none, average and dynamic");
  mch.threshold_skew_multiplier = options.number("threshold_skew_multiplier", mch.threshold_skew_multiplier);
  mch.decay_exponent = options.number("decay_exponent", mch.decay_exponent);
  if (options.has("threshold_skew_multiplier") && mch.filter != sdk::MchFilter::kDynamic)
    wrong("filter", '"' + filter + '"', "threshold_skew_multiplier belongs to dynamic");
  if (options.has("decay_exponent") && mch.policy == sdk::MchPolicy::kLfu)
    wrong("policy", '"' + policy + '"', "decay_exponent belongs to lru and distance_lfu");
  if (!std::isfinite(mch.threshold_skew_multiplier)) wrong("threshold_skew_multiplier", "none", "must be a number");
  if (!std::isfinite(mch.decay_exponent)) wrong("decay_exponent", "none", "must be a number");
  mch.eviction_interval = options.integer("eviction_interval", 1);
  if (mch.eviction_interval < 1) wrong("eviction_interval", mch.eviction_interval, "needs 1 step or more");
  // A bounded table has a row for each of its ids, and one for all ids that are not yet admitted.
  const bool any = ids == INT64_MAX;
  mch.zch_size = options.integer("zch_size", any ? std::max<int64_t>(1, table.rows) : table.rows + 1);
  if (mch.zch_size < (options.has("zch_size") ? 2 : 1))
    wrong("zch_size", mch.zch_size, "needs 2 rows or more: ids without one share the last");
  reset = options.flag("reset", true);
  options.finish();
}

// A block of rows with all states, for export from the inner kernel and import to it.
struct ManagedTable::Block {
  Block(const ManagedTable& table, int64_t rows)
      : dim(table.shape_.dim),
        ids(static_cast<size_t>(rows)),
        weights(static_cast<size_t>(rows * dim)),
        states(table.optimizer_.num_states()),
        views(states.size()) {
    view(id_view, ids.data(), sdk::dtype_of<int64_t>(), {rows, 0}, 1);
    view(weight_view, weights.data(), sdk::dtype_of<float>(), {rows, dim}, 2);
    for (uint32_t k = 0; k < states.size(); ++k) {
      widths.push_back(table.optimizer_.state_width(k, dim));
      states[k].resize(static_cast<size_t>(rows * widths[k]));
      const bool per_element = table.optimizer_.state(k).kind == TSR_STATE_PER_ELEMENT;
      view(views[k], states[k].data(), sdk::dtype_of<float>(), {rows, dim}, per_element ? 2 : 1);
      pointers.push_back(&views[k].tensor);
    }
    raw = {sizeof(tsr_rows),
           0,
           static_cast<uint32_t>(states.size()),
           0,
           0,
           &id_view.tensor,
           &weight_view.tensor,
           pointers.empty() ? nullptr : pointers.data(),
           nullptr};
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  struct View {
    int64_t shape[2];
    DLTensor tensor;
  };
  static void view(View& out, void* data, DLDataType type, const int64_t (&shape)[2], int32_t dims) {
    std::copy_n(shape, 2, out.shape);
    out.tensor = {data, {kDLCPU, 0}, dims, type, out.shape, nullptr, 0};
  }

  int64_t dim;
  std::vector<int64_t> ids;
  std::vector<float> weights;
  std::vector<std::vector<float>> states;
  std::vector<int64_t> widths;
  View id_view{}, weight_view{};
  std::vector<View> views;
  std::vector<const DLTensor*> pointers;
  tsr_rows raw{};
};

ManagedTable::ManagedTable(TableShape shape, uint32_t number, const sdk::OptimizerRef& optimizer,
                           sdk::StartValues start, sdk::InnerInstance inner)
    : shape_(std::move(shape)),
      number_(number),
      optimizer_(optimizer),
      start_(start),
      inner_(std::move(inner)),
      mch_(shape_.mch) {
  begin_all();
}

// If rows keep their values when they get another id, all rows get start values now, as in a table of this size, and
// the shared row exists before it is trained. Otherwise an id's row gets start values when the id is admitted.
void ManagedTable::begin_all() {
  shared_ = !shape_.reset;
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < shape_.mch.zch_size; ++r) rows.push_back(r);
  if (!shape_.reset) begin(rows, rows);
}

void ManagedTable::clear() {
  mch_ = Mch(shape_.mch);
  given_up_ = 0;
  if (marks_) marks_.add_all(shape_.mch.zch_size);
  // The shared row reads as 0 again if it had no start value.
  const Block one(*this, 1);
  tsr_rows raw = one.raw;
  raw.count = 1;
  data_as<int64_t>(*raw.ids)[0] = mch_.shared_row();
  for (uint32_t k = 0; k < raw.num_states; ++k)
    std::fill_n(data_as<float>(*raw.states[k]), one.widths[k], static_cast<float>(optimizer_.state(k).start));
  inner_.import_rows(raw);
  begin_all();
}

// Writes start values of ids, and start states, into rows.
void ManagedTable::begin(std::span<const int64_t> ids, std::span<const int64_t> rows) {
  for (size_t first = 0; first < ids.size(); first += kRowsAtOnce) {
    const size_t count = std::min<size_t>(kRowsAtOnce, ids.size() - first);
    Block b(*this, static_cast<int64_t>(count));
    std::copy_n(rows.begin() + static_cast<int64_t>(first), count, b.ids.begin());
    start_.fill(number_, ids.subspan(first, count), shape_.dim, b.weights.data());
    for (uint32_t k = 0; k < b.states.size(); ++k)
      std::fill(b.states[k].begin(), b.states[k].end(), static_cast<float>(optimizer_.state(k).start));
    b.raw.count = static_cast<int64_t>(count);
    inner_.import_rows(b.raw);
  }
}

void ManagedTable::find(std::span<const int64_t> ids, bool trains, int64_t* rows) {
  std::vector<int64_t> entered;  // ids without a row that are admitted in this step
  if (trains && mch_.profile(ids)) {
    entered.assign(mch_.entered_ids().begin(), mch_.entered_ids().end());
    std::sort(entered.begin(), entered.end());
    note_changes(mch_.evicted_rows());  // these rows now belong to other ids
    if (shape_.reset) begin(mch_.entered_ids(), mch_.evicted_rows());
  }
  mch_.remap(ids, {rows, ids.size()});
  if (trains) note_changes({rows, ids.size()});  // their counts and times changed
  const auto shared = std::count(rows, rows + ids.size(), mch_.shared_row());
  shared_ = shared_ || (trains && shared > 0);
  lookups_ += ids.size();
  const auto first = std::count_if(ids.begin(), ids.end(),
                                   [&](int64_t id) { return std::binary_search(entered.begin(), entered.end(), id); });
  hits_ += ids.size() - static_cast<uint64_t>(shared + first);
}

// The last slot belongs to the shared row.
int64_t ManagedTable::id_of(const Mch::Slot& slot) const {
  if (slot.row == mch_.shared_row()) return shared_ ? kSharedId : kNoRow;
  return slot.raw == Mch::kEmpty ? kNoRow : slot.raw;
}

void ManagedTable::mark(uint32_t follower) {
  marks_.start(follower, shape_.mch.zch_size);
  std::vector<int64_t>& ids = ids_at_mark_[follower];
  ids.clear();
  for (const Mch::Slot& slot : mch_.slots()) {
    if (id_of(slot) != kNoRow) ids.push_back(id_of(slot));
  }
}

sdk::RowChanges ManagedTable::changes(uint32_t follower) const {
  sdk::RowChanges out;
  for (const Mch::Slot& slot : mch_.slots())
    out.changed += id_of(slot) != kNoRow && marks_.has(follower, slot.row) ? 1 : 0;
  for (const int64_t id : ids_at_mark_[follower]) out.removed += is_gone(id) ? 1 : 0;
  return out;
}

bool ManagedTable::is_gone(int64_t id) const {
  if (id == kSharedId) return !shared_;
  int64_t row = 0;
  mch_.remap({&id, 1}, {&row, 1});
  return row == mch_.shared_row();
}

// `cursor` is the next id of the mark to look at.
void ManagedTable::export_removed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const {
  const std::vector<int64_t>& ids = ids_at_mark_[follower];
  const int64_t room = sdk::numel(*rows.ids);
  rows.count = 0;
  for (; cursor < ids.size() && rows.count < room; ++cursor) {
    if (is_gone(ids[cursor])) data_as<int64_t>(*rows.ids)[rows.count++] = ids[cursor];
  }
}

void ManagedTable::export_changed(uint32_t follower, uint64_t& cursor, tsr_rows& rows) {
  export_some(cursor, rows, [&](int64_t row) { return marks_.has(follower, row); });
}

void ManagedTable::export_rows(uint64_t& cursor, tsr_rows& rows) {
  export_some(cursor, rows, [](int64_t) { return true; });
}

// `cursor` is the next slot to look at.
template <class Wanted>
void ManagedTable::export_some(uint64_t& cursor, tsr_rows& rows, const Wanted& wanted) {
  const auto slots = mch_.slots();
  const int64_t room = std::min(sdk::numel(*rows.ids), kRowsAtOnce), dim = shape_.dim;
  Block one(*this, 1);
  rows.count = 0;
  for (; cursor < slots.size() && rows.count < room; ++cursor) {
    const Mch::Slot& slot = slots[cursor];
    if (id_of(slot) == kNoRow || !wanted(slot.row)) continue;
    inner_.export_rows(static_cast<uint64_t>(slot.row), one.raw);
    const int64_t i = rows.count++;
    data_as<int64_t>(*rows.ids)[i] = id_of(slot);
    std::copy_n(one.weights.data(), dim, data_as<float>(*rows.weights) + i * dim);
    for (uint32_t k = 0; k < rows.num_states; ++k)
      std::copy_n(one.states[k].data(), one.widths[k], data_as<float>(*rows.states[k]) + i * one.widths[k]);
    if (rows.extra != nullptr) {
      const Extra extra = id_of(slot) == kSharedId ? Extra{0, 0} : Extra{slot.count, slot.last};
      std::memcpy(static_cast<char*>(rows.extra) + i * rows.extra_stride, &extra, sizeof(extra));
    }
  }
}

void ManagedTable::import_rows(const tsr_rows& rows) {
  if ((rows.flags & TSR_IMPORT_REPLACE) != 0) clear();
  if (rows.num_states != 0 && rows.num_states != optimizer_.num_states())
    fail(TSR_INVALID_ARGUMENT, "table \"", shape_.name, "\" has ", optimizer_.num_states(), " optimizer states, not ",
         rows.num_states);
  const auto ids = elements<const int64_t>(*rows.ids, "ids").first(static_cast<size_t>(rows.count));
  std::vector<int64_t> before(ids.size()), own(ids.size());
  mch_.remap(ids, before);
  std::vector<Mch::Slot> given;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == kSharedId) {
      shared_ = true;
      continue;
    }
    Extra extra{1, 0};
    if (rows.extra != nullptr)
      std::memcpy(&extra, static_cast<const char*>(rows.extra) + static_cast<int64_t>(i) * rows.extra_stride,
                  sizeof(extra));
    if (rows.extra != nullptr || before[i] == mch_.shared_row()) given.push_back({ids[i], 0, extra.count, extra.last});
  }
  const int64_t evictions = mch_.evictions();
  mch_.put(std::move(given));
  given_up_ += mch_.evictions() - evictions;
  note_changes(mch_.evicted_rows());
  begin(mch_.entered_ids(), mch_.evicted_rows());
  mch_.remap(ids, own);
  for (size_t i = 0; i < ids.size(); ++i) {  // this id also marks empty slots
    if (ids[i] == kSharedId) own[i] = mch_.shared_row();
  }
  note_changes(own);
  // Ids that rank below all existing ones are not admitted, and their rows are left out.
  const int64_t dim = shape_.dim;
  Block one(*this, 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (own[i] == mch_.shared_row() && ids[i] != kSharedId) continue;
    one.ids[0] = own[i];
    const auto at = static_cast<int64_t>(i);
    std::copy_n(data_as<float>(*rows.weights) + at * dim, dim, one.weights.data());
    for (uint32_t k = 0; k < rows.num_states; ++k)
      std::copy_n(data_as<float>(*rows.states[k]) + at * one.widths[k], one.widths[k], one.states[k].data());
    one.raw.num_states = rows.num_states;
    one.raw.count = 1;
    inner_.import_rows(one.raw);
  }
}

void ManagedTable::save_memory(const sdk::ExtraBytes& to) const {
  const Mch::Memory memory = mch_.memory();
  const int64_t numbers[3] = {memory.step, memory.last_eviction, memory.room};
  to.write(numbers, sizeof(numbers));
  write_slots(to, memory.history);
}

void ManagedTable::add_memory(const sdk::ExtraBytes& from) {
  int64_t numbers[3];
  from.read(numbers, sizeof(numbers));
  mch_.remember({numbers[0], numbers[1], numbers[2], read_slots(from)});
}

tsr_kernel_stats ManagedTable::stats() const {
  tsr_kernel_stats out = inner_.stats();
  out.struct_size = sizeof(out);
  out.extra_bytes = sizeof(Extra);
  out.other_bytes += marks_.bytes();
  for (const std::vector<int64_t>& ids : ids_at_mark_) out.other_bytes += ids.size() * sizeof(int64_t);
  out.other_bytes += (mch_.slots().size() + mch_.memory().history.size()) * sizeof(Mch::Slot);
  out.lookups = lookups_;
  out.hits = hits_;
  out.rows_in_use = static_cast<uint64_t>(shape_.mch.zch_size - 1 - mch_.open_slots() + (shared_ ? 1 : 0));
  out.evictions = static_cast<uint64_t>(mch_.evictions() - given_up_);
  return out;
}

}  // namespace extras
