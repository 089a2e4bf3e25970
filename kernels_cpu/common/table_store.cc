#include "table_store.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tessera_cpu {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

sdk::Buffer zeros(sdk::Host host, int64_t bytes) {
  sdk::Buffer buffer(host, static_cast<uint64_t>(bytes));
  constexpr int64_t kPiece = 8 << 20;
  auto clear = [&](uint64_t i) {
    const int64_t at = static_cast<int64_t>(i) * kPiece;
    std::memset(buffer.data<char>() + at, 0, static_cast<size_t>(std::min(kPiece, bytes - at)));
  };
  if (bytes <= kPiece) {
    if (bytes > 0) clear(0);
  } else {
    host.parallel_for(static_cast<uint64_t>((bytes + kPiece - 1) / kPiece), clear);
  }
  return buffer;
}

DLDataType dl_of(Storage storage) {
  if (storage == Storage::kFloat32) return sdk::dtype_of<float>();
  return {static_cast<uint8_t>(storage == Storage::kFloat16 ? kDLFloat : kDLBfloat), 16, 1};
}

}  // namespace

TableStore::TableStore(TableSpec spec, Storage storage, const sdk::OptimizerRef& optimizer)
    : spec_(std::move(spec)), storage_(storage), row_bytes_(spec_.dim * bytes_of(storage)) {
  const uint32_t n = optimizer.num_states();
  for (uint32_t k = 0; k < n; ++k) {
    const tsr_state& s = optimizer.state(k);
    states_.push_back({nullptr, 0, optimizer.state_width(k, spec_.dim), static_cast<float>(s.start), s.kind});
    bytes_of_kind(s.kind) += states_.back().width * 4;
  }
  for (State& state : states_) state.stride = bytes_of_kind(state.kind) / 4;
  if (spec_.rows > 0 && row_and_state_bytes() > INT64_MAX / 16 / spec_.rows) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "table \"", spec_.name, "\": ", spec_.rows, " rows of ", spec_.dim,
              " columns do not fit in any memory");
  }
}

int64_t TableStore::block_bytes() const {
  return aligned(spec_.rows * row_bytes_) + aligned(spec_.rows * element_bytes_) + aligned(spec_.rows * per_row_bytes_);
}

void TableStore::place(char* block) {
  weights_ = block;
  auto* elements = reinterpret_cast<float*>(block + aligned(spec_.rows * row_bytes_));
  float* per_row = elements + aligned(spec_.rows * element_bytes_) / 4;
  for (State& state : states_) {
    float*& next = state.kind == TSR_STATE_PER_ELEMENT ? elements : per_row;
    state.data = next;
    next += state.width;
  }
}

void TableStore::start_states(sdk::Host host) {
  for (const State& state : states_) {
    if (state.start == 0) continue;  // the memory is already 0
    constexpr int64_t kRows = 4096;
    const auto fill = [&](uint64_t i) {
      const int64_t first = static_cast<int64_t>(i) * kRows;
      for (int64_t r = first; r < std::min(first + kRows, spec_.rows); ++r)
        std::fill_n(state.data + r * state.stride, state.width, state.start);
    };
    host.parallel_for(static_cast<uint64_t>((spec_.rows + kRows - 1) / kRows), fill);
  }
}

void TableStore::read_rows(int64_t first, int64_t count, float* out) const {
  const char* from = row(first);
  const int64_t n = count * spec_.dim;
  if (storage_ == Storage::kFloat32) {
    std::copy_n(reinterpret_cast<const float*>(from), n, out);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = load_value(storage_, from, i);
  }
}

void TableStore::write_row(int64_t r, const float* values) {
  char* to = row(r);
  if (storage_ == Storage::kFloat32) {
    std::copy_n(values, spec_.dim, reinterpret_cast<float*>(to));
  } else {
    for (int64_t d = 0; d < spec_.dim; ++d) store_value(storage_, to, d, values[d]);
  }
}

void TableStore::write_updated_row(int64_t r, int64_t step, const float* values) {
  if (!spec_.rounding.stochastic) return write_row(r, values);
  store_at_random(spec_.rounding, storage_ == Storage::kBFloat16, r, step, values, spec_.dim,
                  reinterpret_cast<uint16_t*>(row(r)));
}

void TableStore::read_states(uint32_t k, int64_t first, int64_t count, float* out) const {
  const State& s = states_[k];
  if (s.stride == s.width) {
    std::copy_n(state(k, first), count * s.width, out);
  } else {
    for (int64_t i = 0; i < count; ++i) std::copy_n(state(k, first + i), s.width, out + i * s.width);
  }
}

tsr_kernel_stats TableStore::stats(uint64_t other_bytes, uint64_t lookups) const {
  tsr_kernel_stats out{};
  out.weight_bytes = weight_bytes();
  out.state_bytes = state_bytes();
  out.other_bytes = other_bytes;
  out.rows_in_use = static_cast<uint64_t>(rows());
  out.lookups = out.hits = lookups;
  return out;
}

void TableStore::check_rows(const tsr_rows& rows, int64_t count) const {
  const int64_t capacity = static_cast<int64_t>(sdk::elements<int64_t>(*rows.ids, "ids").size());
  if (count < 0 || count > capacity || sdk::numel(*rows.weights) < count * spec_.dim) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": ", count, " rows do not fit the tensors given, ",
              capacity, " ids and ", sdk::numel(*rows.weights), " weights");
  }
  if (rows.num_states != 0 && rows.num_states != num_states()) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\" has ", num_states(), " states, not ", rows.num_states);
  }
  for (uint32_t k = 0; k < rows.num_states; ++k) {
    if (static_cast<int64_t>(sdk::elements<float>(*rows.states[k], "state").size()) < count * states_[k].width) {
      sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": state ", k, " is too small for ", count, " rows");
    }
  }
}

// Copies `count` rows from `first` on to the exported rows from `to` on.
void TableStore::copy_rows(int64_t first, int64_t count, int64_t to, const tsr_rows& rows) const {
  int64_t* ids = sdk::data_as<int64_t>(*rows.ids) + to;
  std::iota(ids, ids + count, first);
  read_rows(first, count, sdk::data_as<float>(*rows.weights) + to * spec_.dim);
  for (uint32_t k = 0; k < rows.num_states; ++k)
    read_states(k, first, count, sdk::data_as<float>(*rows.states[k]) + to * states_[k].width);
}

void TableStore::export_rows(uint64_t& cursor, tsr_rows& rows) const {
  const int64_t first = static_cast<int64_t>(std::min(cursor, static_cast<uint64_t>(spec_.rows)));
  const int64_t count = std::min(sdk::numel(*rows.ids), spec_.rows - first);
  check_rows(rows, count);
  copy_rows(first, count, 0, rows);
  rows.count = count;
  cursor = static_cast<uint64_t>(first + count);
}

void TableStore::export_marked(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const {
  check_rows(rows, std::min(sdk::numel(*rows.ids), spec_.rows));
  int64_t count = 0, next = static_cast<int64_t>(std::min(cursor, static_cast<uint64_t>(spec_.rows)));
  for (; count < sdk::numel(*rows.ids); ++count, ++next) {
    next = marks_.next(follower, next);
    if (next < 0) break;
    copy_rows(next, 1, count, rows);
  }
  rows.count = count;
  cursor = static_cast<uint64_t>(next < 0 ? spec_.rows : next);
}

void TableStore::mark(uint32_t follower) {
  marks_.start(follower, spec_.rows);
  if (viewed_) marks_.add_all(spec_.rows);
}

tsr_matrix_view TableStore::view(int32_t state) {
  const DLDevice cpu{kDLCPU, 0};
  if (state == TSR_VIEW_WEIGHTS) {
    viewed_ = true;
    if (marks_) marks_.add_all(spec_.rows);
    return {sizeof(tsr_matrix_view), dl_of(storage_), cpu, weights_, spec_.rows, spec_.dim, spec_.dim};
  }
  if (state < 0 || static_cast<size_t>(state) >= states_.size()) {
    sdk::fail(TSR_OUT_OF_RANGE, "table \"", spec_.name, "\" has no state ", state, ": it has ", states_.size());
  }
  const State& s = states_[static_cast<size_t>(state)];
  return {sizeof(tsr_matrix_view), sdk::dtype_of<float>(), cpu, s.data, spec_.rows, s.width, s.stride};
}

// The ids of the rows that a caller names. Throws Failure if one does not exist.
std::span<const int64_t> TableStore::known_ids(const tsr_rows& rows) const {
  check_rows(rows, rows.count);
  const auto ids = sdk::elements<const int64_t>(*rows.ids, "ids").first(static_cast<size_t>(rows.count));
  for (const int64_t id : ids) {
    if (id < 0 || id >= spec_.rows) {
      sdk::fail(TSR_OUT_OF_RANGE, "table \"", spec_.name, "\" has no row ", id, ": it has ", spec_.rows, " rows");
    }
  }
  return ids;
}

void TableStore::read_named_rows(const tsr_rows& rows) const {
  const std::span<const int64_t> ids = known_ids(rows);
  float* weights = sdk::elements<float>(*rows.weights, "weights").data();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    read_rows(ids[i], 1, weights + at * spec_.dim);
    for (uint32_t k = 0; k < rows.num_states; ++k)
      read_states(k, ids[i], 1, sdk::data_as<float>(*rows.states[k]) + at * states_[k].width);
  }
}

void TableStore::import_rows(const tsr_rows& rows) {
  const std::span<const int64_t> ids = known_ids(rows);
  const float* weights = sdk::elements<float>(*rows.weights, "weights").data();
  if (marks_) marks_.add(ids.data(), rows.count);
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t id = ids[static_cast<size_t>(i)];
    write_row(id, weights + i * spec_.dim);
    for (uint32_t k = 0; k < rows.num_states; ++k) {
      std::copy_n(sdk::data_as<float>(*rows.states[k]) + i * states_[k].width, states_[k].width, state(k, id));
    }
  }
}

sdk::Buffer make_tables(sdk::Host host, const Config& config, std::vector<TableStore>* tables) {
  tables->clear();
  int64_t bytes = 0;
  for (const TableSpec& spec : config.tables) {
    const TableStore& table = tables->emplace_back(spec, config.weights, config.optimizer);
    if (table.block_bytes() > INT64_MAX - bytes) {
      sdk::fail(TSR_RESOURCE_EXHAUSTED, "table \"", spec.name, "\" and those before it do not fit in any memory");
    }
    bytes += table.block_bytes();
  }
  sdk::Buffer block = zeros(host, std::max<int64_t>(bytes, 64));
  char* at = block.data<char>();
  for (TableStore& table : *tables) {
    table.place(at);
    table.start_states(host);
    at += table.block_bytes();
  }
  return block;
}

RowGradients::RowGradients(const TableStore& table, const DLTensor& r, const DLTensor& v)
    : rows(sdk::elements<const int64_t>(r, "rows").data()),
      values(sdk::elements<const float>(v, "values").data()),
      count(sdk::numel(r)) {
  if (sdk::numel(v) != count * table.dim()) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", table.name(), "\": ", count, " rows of ", table.dim(), " columns need ",
              count * table.dim(), " gradient values, not ", sdk::numel(v));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (rows[i] < 0 || rows[i] >= table.rows() || (i > 0 && rows[i] <= rows[i - 1])) {
      sdk::fail(TSR_OUT_OF_RANGE, "table \"", table.name(), "\": gradient ", i, " is for row ", rows[i],
                ", but rows must ascend, be unique and lie below ", table.rows());
    }
  }
}

}  // namespace tessera_cpu
