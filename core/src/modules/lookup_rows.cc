// Moves rows into and out of a kernel's instance.
#include <algorithm>
#include <numeric>
#include <utility>

#include "modules/lookup_impl.h"
#include "tessera/abi/draft/changes.h"
#include "tessera/abi/draft/on_demand.h"
#include "tessera/abi/draft/rows_view.h"
#include "tessera/sdk/sized.h"

namespace tessera {
namespace {

// Number of rows that one call of export_rows or import_rows moves. This bounds the memory for their ids.
constexpr int64_t kRowsPerCall = 1 << 16;
// The same for new rows, whose values are computed before the call.
constexpr int64_t kRowsPerStart = 1 << 13;

// A tsr_rows over the caller's memory, for one call.
struct RawRows {
  RawRows(Tensor& ids, const LookupTable& table, const std::vector<Lookup::State>& states, int64_t count,
          const float* weights, std::span<const float* const> values, int64_t first) {
    ids_ = ids.first({count}).dl();
    row_shape_[0] = count;
    row_shape_[1] = table.dim;
    ids_.shape = row_shape_;
    weights_ = view(weights + first * table.dim, 2);
    state_views_.reserve(values.size());
    for (size_t k = 0; k < values.size(); ++k) {
      const int64_t width = states[k].per_row ? 1 : table.dim;
      state_views_.push_back(view(values[k] + first * width, states[k].per_row ? 1 : 2));
    }
    for (const DLTensor& v : state_views_) state_pointers_.push_back(&v);
    const auto num_states = static_cast<uint32_t>(values.size());
    raw = {sizeof(tsr_rows), 0, num_states, 0, count, &ids_, &weights_, state_pointers_.data(), nullptr};
  }
  RawRows(const RawRows&) = delete;
  RawRows& operator=(const RawRows&) = delete;
  void take_extra(const void* extra, int64_t bytes, int64_t first) {
    if (extra == nullptr) return;
    raw.extra = static_cast<char*>(const_cast<void*>(extra)) + first * bytes;
    raw.extra_stride = static_cast<uint32_t>(bytes);
  }

  tsr_rows raw;

 private:
  // Casts const away, because the ABI has one struct for both directions. Import only reads.
  DLTensor view(const float* data, int32_t ndim) {
    return {const_cast<float*>(data), kCpu.dl(), ndim, to_dl(DType::kFloat32), row_shape_, nullptr, 0};
  }

  int64_t row_shape_[2];
  DLTensor ids_;
  DLTensor weights_;
  std::vector<DLTensor> state_views_;
  std::vector<const DLTensor*> state_pointers_;
};

void check_range(const LookupTable& table, int64_t first, int64_t count, size_t states, size_t wanted) {
  TESSERA_CHECK(first >= 0 && count >= 0 && first + count <= table.rows, "rows ", first, " + ", count, " of ",
                table.rows);
  TESSERA_CHECK(wanted == 0 || wanted == states, "the optimizer has ", states, " states");
}

}  // namespace

void Lookup::read_rows(int table, int64_t first, int64_t count, float* weights, std::span<float* const> states,
                       void* extra) const {
  impl_->need(impl_->api->export_rows, "hand out ranges of rows");
  const LookupTable& t = impl_->table(table);
  check_range(t, first, count, impl_->states.size(), states.size());
  Tensor ids = Tensor::empty({std::min(count, kRowsPerCall)}, DType::kInt64);
  const std::vector<const float*> into(states.begin(), states.end());
  const int64_t extra_row = extra == nullptr ? 0 : extra_bytes(table);
  for (int64_t done = 0; done < count;) {
    RawRows rows(ids, t, impl_->states, std::min(count - done, kRowsPerCall), weights, into, done);
    rows.take_extra(extra, extra_row, done);
    uint64_t cursor = static_cast<uint64_t>(first + done);
    impl_->call("export_rows", impl_->api->export_rows, impl_->instance, static_cast<uint32_t>(table), &cursor,
                &rows.raw);
    if (rows.raw.count <= 0 || ids.data<int64_t>()[0] != first + done) {
      fail(Code::kUnimplemented, "kernel \"", kernel_id(), "\" does not hold table \"", t.name,
           "\" as a range of rows");
    }
    done += rows.raw.count;
  }
}

void Lookup::write_rows(int table, int64_t first, int64_t count, const float* weights,
                        std::span<const float* const> states, const void* extra) {
  const LookupTable& t = impl_->table(table);
  check_range(t, first, count, impl_->states.size(), states.size());
  Tensor ids = Tensor::empty({std::min(count, kRowsPerCall)}, DType::kInt64);
  const int64_t extra_row = extra == nullptr ? 0 : extra_bytes(table);
  for (int64_t done = 0; done < count;) {
    RawRows rows(ids, t, impl_->states, std::min(count - done, kRowsPerCall), weights, states, done);
    rows.take_extra(extra, extra_row, done);
    for (int64_t i = 0; i < rows.raw.count; ++i) ids.data<int64_t>()[i] = first + done + i;
    impl_->import(table, rows.raw);
    done += rows.raw.count;
  }
}

bool Lookup::rows_on_demand() const { return impl_->rows_on_demand(); }

// Makes one call of a function that exports rows by a cursor.
int64_t Lookup::export_by(const RowExport& function, const Room& room) const {
  Tensor into = Tensor::borrow(room.ids.data(), {std::ssize(room.ids)}, DType::kInt64);
  const std::vector<const float*> states(room.states.begin(), room.states.end());
  RawRows rows(into, impl_->table(room.table), impl_->states, std::ssize(room.ids), room.weights, states, 0);
  if (room.extra != nullptr) rows.take_extra(room.extra, extra_bytes(room.table), 0);
  impl_->call(function.name, function.call, &room.cursor, &rows.raw);
  return impl_->count_of(rows.raw, std::ssize(room.ids), function.name);
}

int64_t Lookup::export_rows(int table, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                            std::span<float* const> states, void* extra) const {
  impl_->need(impl_->api->export_rows, "hand out rows");
  const auto call = [&](uint64_t* at, tsr_rows* rows, tsr_error* err) {
    return impl_->api->export_rows(impl_->instance, static_cast<uint32_t>(table), at, rows, err);
  };
  return export_by({"export_rows", call}, {table, cursor, ids, weights, states, extra});
}

void Lookup::import_rows(int table, std::span<const int64_t> ids, const float* weights,
                         std::span<const float* const> states, const void* extra) {
  Tensor from = Tensor::borrow(const_cast<int64_t*>(ids.data()), {std::ssize(ids)}, DType::kInt64);
  RawRows rows(from, impl_->table(table), impl_->states, std::ssize(ids), weights, states, 0);
  if (extra != nullptr) rows.take_extra(extra, extra_bytes(table), 0);
  impl_->import(table, rows.raw);
}

void Lookup::clear_rows(int table) {
  Tensor none = Tensor::empty({0}, DType::kInt64);
  const float no_weights = 0;
  RawRows rows(none, impl_->table(table), impl_->states, 0, &no_weights, {}, 0);
  rows.raw.flags = TSR_IMPORT_REPLACE;
  impl_->import(table, rows.raw);
}

namespace {

// Bytes of a table that a kernel writes or reads in pieces.
struct ByteStream {
  std::string written;
  std::string_view to_read;

  tsr_stream_io raw() { return {sizeof(tsr_stream_io), 0, this, write, read}; }
  static tsr_code write(void* self, const void* bytes, uint64_t size, tsr_error* err) noexcept {
    return sdk::guard(err,
                      [&] { static_cast<ByteStream*>(self)->written.append(static_cast<const char*>(bytes), size); });
  }
  static tsr_code read(void* self, void* bytes, uint64_t size, tsr_error* err) noexcept {
    return sdk::guard(err, [&] {
      std::string_view& left = static_cast<ByteStream*>(self)->to_read;
      if (size > left.size()) sdk::fail(TSR_DATA_LOSS, "it ends ", size - left.size(), " bytes early");
      std::copy_n(left.data(), size, static_cast<char*>(bytes));
      left.remove_prefix(size);
    });
  }
};

}  // namespace

std::string Lookup::table_extra(int table) const {
  impl_->table(table);
  const auto* draft = impl_->kernel->extension<tsr_on_demand>(TSR_ON_DEMAND);
  if (draft == nullptr || draft->save == nullptr) return "";
  ByteStream bytes;
  const tsr_stream_io io = bytes.raw();
  impl_->call("on_demand.save", draft->save, impl_->instance, static_cast<uint32_t>(table), &io);
  return std::move(bytes.written);
}

void Lookup::add_table_extra(int table, std::string_view saved) {
  impl_->table(table);
  const auto* draft = impl_->kernel->extension<tsr_on_demand>(TSR_ON_DEMAND);
  if (draft == nullptr || draft->add == nullptr) return;  // this kernel may not need what another one saved
  ByteStream bytes{{}, saved};
  const tsr_stream_io io = bytes.raw();
  impl_->call("on_demand.add", draft->add, impl_->instance, static_cast<uint32_t>(table), &io);
}

RowFigures Lookup::row_figures(int table) const {
  const tsr_kernel_stats counted = stats(table);
  RowFigures out{0,
                 static_cast<int64_t>(counted.lookups),
                 static_cast<int64_t>(counted.hits),
                 static_cast<int64_t>(counted.evictions),
                 {}};
  const auto* draft = impl_->kernel->extension<tsr_on_demand>(TSR_ON_DEMAND);
  if (draft == nullptr || draft->ages == nullptr) return out;
  auto ages = sdk::sized<tsr_table_ages>();
  impl_->call("on_demand.ages", draft->ages, impl_->instance, static_cast<uint32_t>(table), &ages);
  out.capacity = static_cast<int64_t>(ages.capacity);
  out.ages.assign(std::begin(ages.rows), std::end(ages.rows));
  return out;
}

namespace {

uint32_t number_of(Lookup::Follower follower) { return static_cast<uint32_t>(follower); }

const tsr_kernel_changes& changes_of(const Component& kernel, const std::string& table, Lookup::Follower follower) {
  const auto* draft = kernel.extension<tsr_kernel_changes>(TSR_KERNEL_CHANGES);
  if (draft == nullptr) {
    fail(Code::kUnimplemented, "kernel \"", kernel.id(), "\", which has table \"", table,
         "\", does not report which of its rows change (", TSR_KERNEL_CHANGES,
         "), which publishing needs: choose a kernel that does");
  }
  if (number_of(follower) >= draft->followers) {
    fail(Code::kUnimplemented, "kernel \"", kernel.id(), "\", which has table \"", table,
         "\", reports changed rows to only ", draft->followers,
         " of the followers, which are checkpoints of changes and publishing");
  }
  return *draft;
}

}  // namespace

bool Lookup::shares_row(int table) const {
  const auto* draft = impl_->kernel->extension<tsr_on_demand>(TSR_ON_DEMAND);
  if (draft == nullptr || draft->shares == nullptr) return false;
  int32_t out = 0;
  impl_->call("on_demand.shares", draft->shares, impl_->instance, static_cast<uint32_t>(table), &out);
  return out != 0;
}

MatrixView Lookup::view(int table, int state) const {
  const LookupTable& t = impl_->table(table);
  const auto* draft = impl_->kernel->extension<tsr_rows_view>(TSR_ROWS_VIEW);
  if (draft == nullptr) {
    fail(Code::kUnimplemented, "kernel \"", kernel_id(), "\", which has table \"", t.name,
         "\", gives no view of its rows (", TSR_ROWS_VIEW, "): read and write copies of them");
  }
  auto raw = sdk::sized<tsr_matrix_view>();
  impl_->call("rows_view", draft->view, impl_->instance, static_cast<uint32_t>(table), state, &raw);
  if (raw.rows != t.rows || (state < 0 && raw.cols != t.dim)) {
    fail(Code::kInternal, kernel_id(), ": the view of table \"", t.name, "\" is [", raw.rows, ", ", raw.cols,
         "], and the table is [", t.rows, ", ", t.dim, "]");
  }
  const Device device{static_cast<DeviceType>(raw.device.device_type), raw.device.device_id};
  return {raw.data, raw.rows, raw.cols, raw.stride, from_dl(raw.dtype), device};
}

bool Lookup::knows_changes() const {
  return impl_->kernel->extension<tsr_kernel_changes>(TSR_KERNEL_CHANGES) != nullptr;
}

void Lookup::mark_changes(Follower follower) {
  const tsr_kernel_changes& draft = changes_of(*impl_->kernel, impl_->table(0).name, follower);
  impl_->call("changes.mark", draft.mark, impl_->instance, number_of(follower));
}

Lookup::RowChanges Lookup::changes(Follower follower, int table) const {
  const tsr_kernel_changes& draft = changes_of(*impl_->kernel, impl_->table(table).name, follower);
  RowChanges out;
  impl_->call("changes.count", draft.count, impl_->instance, number_of(follower), static_cast<uint32_t>(table),
              &out.changed, &out.removed);
  return out;
}

int64_t Lookup::export_changed(Follower follower, int table, uint64_t& cursor, std::span<int64_t> ids, float* weights,
                               std::span<float* const> states, void* extra) const {
  const tsr_kernel_changes& draft = changes_of(*impl_->kernel, impl_->table(table).name, follower);
  const auto call = [&](uint64_t* at, tsr_rows* rows, tsr_error* err) {
    return draft.export_changed(impl_->instance, number_of(follower), static_cast<uint32_t>(table), at, rows, err);
  };
  return export_by({"changes.export_changed", call}, {table, cursor, ids, weights, states, extra});
}

int64_t Lookup::export_removed(Follower follower, int table, uint64_t& cursor, std::span<int64_t> ids) const {
  const tsr_kernel_changes& draft = changes_of(*impl_->kernel, impl_->table(table).name, follower);
  float no_weights = 0;
  const auto call = [&](uint64_t* at, tsr_rows* rows, tsr_error* err) {
    return draft.export_removed(impl_->instance, number_of(follower), static_cast<uint32_t>(table), at, rows, err);
  };
  return export_by({"changes.export_removed", call}, {table, cursor, ids, &no_weights, {}, nullptr});
}

int64_t Lookup::extra_bytes(int table) const {
  const uint32_t bytes = stats(table).extra_bytes;
  if (bytes % 4 != 0) fail(Code::kInternal, kernel_id(), ": ", bytes, " extra bytes of a row are not a multiple of 4");
  return bytes;
}

void Lookup::adopt_rows(int table, const Tensor& rows) {
  const LookupTable& t = impl_->table(table);
  if (!TSR_HAS(tsr_kernel, impl_->api, adopt_rows)) {
    fail(Code::kUnimplemented, "kernel \"", kernel_id(), "\" cannot read stored rows in place");
  }
  if (rows.dtype() != DType::kUInt8 || rows.dim() != 2 || rows.size(0) != t.rows) {
    fail(Code::kInvalidArgument, "the stored rows of table \"", t.name, "\" must be uint8 [", t.rows,
         ", bytes of a row]");
  }
  const tsr_stored_rows raw{sizeof(tsr_stored_rows),
                            0,
                            rows.raw(),
                            static_cast<uint64_t>(rows.bytes()),
                            rows.size(1),
                            options().row_format ? sdk::info_of(*options().row_format).layout : nullptr};
  impl_->call("adopt_rows", impl_->api->adopt_rows, impl_->instance, static_cast<uint32_t>(table), &raw);
  impl_->adopted.resize(impl_->options.tables.size());
  impl_->adopted[static_cast<size_t>(table)] = rows;
}

void Lookup::start_rows() {
  if (makes_rows()) return;
  std::vector<int64_t> rows;
  std::vector<float> values;
  for (size_t t = 0; t < options().tables.size(); ++t) {
    const LookupTable& table = options().tables[t];
    if (table.start.formula.scale == 0) continue;  // these rows keep the values that they have
    for (int64_t first = 0; first < table.rows; first += static_cast<int64_t>(rows.size())) {
      rows.resize(static_cast<size_t>(std::min(kRowsPerStart, table.rows - first)));
      std::iota(rows.begin(), rows.end(), first);
      values.resize(rows.size() * static_cast<size_t>(table.dim));
      table.start.fill(rows, table.dim, values.data());
      write_rows(static_cast<int>(t), first, static_cast<int64_t>(rows.size()), values.data());
    }
  }
}

Tensor Lookup::weight(int table) const {
  const LookupTable& t = impl_->table(table);
  Tensor out = Tensor::empty({t.rows, t.dim});
  read_rows(table, 0, t.rows, out.data<float>());
  return out;
}

Tensor Lookup::state(int table, int k) const {
  const LookupTable& t = impl_->table(table);
  TESSERA_CHECK(k >= 0 && static_cast<size_t>(k) < impl_->states.size(), "state ", k);
  Tensor weights = Tensor::empty({t.rows, t.dim});
  std::vector<Tensor> all;
  std::vector<float*> into;
  for (const State& s : impl_->states) {
    all.push_back(Tensor::empty(s.per_row ? std::vector<int64_t>{t.rows} : std::vector<int64_t>{t.rows, t.dim}));
    into.push_back(all.back().data<float>());
  }
  read_rows(table, 0, t.rows, weights.data<float>(), into);
  return all[static_cast<size_t>(k)];
}

void Lookup::set_weight(int table, const Tensor& value) {
  const LookupTable& t = impl_->table(table);
  TESSERA_CHECK(value.numel() == t.rows * t.dim, "table ", t.name, " has ", t.rows, " x ", t.dim, " weights");
  const Tensor as_float = value.to(DType::kFloat32);
  write_rows(table, 0, t.rows, as_float.data<float>());
}

tsr_kernel_stats Lookup::stats(int table) const {
  impl_->table(table);
  auto out = sdk::sized<tsr_kernel_stats>();
  impl_->call("stats", impl_->api->stats, impl_->instance, static_cast<uint32_t>(table), &out);
  return out;
}

}  // namespace tessera
