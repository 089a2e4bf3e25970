#include "kernel/table_store.h"

#include <algorithm>

namespace tessera::gpu {
namespace {

constexpr int64_t kPieceBytes = 8 << 20;  // size of a copy between host and device

}  // namespace

TableStore::TableStore(sdk::Host host, DLDevice device, TableSpec spec, Storage storage,
                       const sdk::OptimizerRef& optimizer, Stream stream)
    : host_(host),
      device_(device),
      spec_(std::move(spec)),
      storage_(storage),
      weights_(host, device),
      element_states_(host, device),
      row_states_(host, device) {
  for (uint32_t k = 0; k < optimizer.num_states(); ++k) {
    const bool per_row = optimizer.state(k).kind == TSR_STATE_PER_ROW;
    const auto start = static_cast<float>(optimizer.state(k).start);
    states_.push_back({per_row, static_cast<int32_t>(per_row ? per_row_++ : per_element_++), start});
  }
  const int64_t row_bytes = spec_.dim * (bytes_of(storage) + 4 * per_element_) + 4 * per_row_;
  try {
    if (spec_.rows > INT64_MAX / 2 / row_bytes) sdk::fail(TSR_RESOURCE_EXHAUSTED, "no memory holds as much");
    const auto zeros = [&](DeviceScratch& memory, uint64_t bytes) {
      if (bytes > 0) memset_async(memory.take_exactly(bytes, stream), 0, bytes, stream);
    };
    zeros(weights_, weight_bytes());
    zeros(element_states_, static_cast<uint64_t>(4 * spec_.rows * spec_.dim * per_element_));
    zeros(row_states_, static_cast<uint64_t>(4 * spec_.rows * per_row_));
    start_states(element_states_, false, stream);
    start_states(row_states_, true, stream);
  } catch (const sdk::Failure& failure) {
    if (failure.code() != TSR_RESOURCE_EXHAUSTED) throw;
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "table \"", spec_.name, "\": ", spec_.rows, " rows of ", row_bytes,
              " bytes, optimizer state included, do not fit in the memory of device ", device.device_id,
              ": divide it among more shards, or keep it on the CPU (", failure.what(), ")");
  }
}

// Copies a block of start values repeatedly, because filling memory with a byte value is only right for 0.
void TableStore::start_states(const DeviceScratch& memory, bool per_row, Stream stream) const {
  std::vector<float> row(static_cast<size_t>(per_row ? per_row_ : per_element_ * spec_.dim));
  for (const State& s : states_) {
    const auto width = static_cast<size_t>(per_row ? 1 : spec_.dim);
    if (s.per_row == per_row) std::fill_n(row.data() + static_cast<size_t>(s.index) * width, width, s.start);
  }
  if (spec_.rows == 0 || std::all_of(row.begin(), row.end(), [](float x) { return x == 0; })) return;
  const auto floats = static_cast<int64_t>(row.size());
  const int64_t most = std::clamp<int64_t>(kPieceBytes / (4 * floats), 1, spec_.rows);
  std::vector<float> piece;
  for (int64_t i = 0; i < most; ++i) piece.insert(piece.end(), row.begin(), row.end());
  for (int64_t first = 0; first < spec_.rows; first += most) {
    const int64_t count = std::min(most, spec_.rows - first);
    memcpy_async(memory.data<float>() + first * floats, piece.data(), static_cast<size_t>(count * floats) * 4, stream);
  }
  stream_synchronize(stream);
}

TableView TableStore::view(int64_t first_key) const {
  TableView v{};
  v.weights = weights_.data();
  v.elements = element_states_.data<float>();
  v.per_row = row_states_.data<float>();
  v.rows = spec_.rows;
  v.first_key = first_key;
  v.row_stride = spec_.dim;
  v.element_stride = per_element_ * spec_.dim;
  v.row_states = static_cast<int32_t>(per_row_);
  v.dim = static_cast<int32_t>(spec_.dim);
  v.aligned = spec_.dim % 4 == 0 ? 1 : 0;
  return v;
}

void TableStore::check_rows(const tsr_rows& rows, int64_t count) const {
  const int64_t capacity = static_cast<int64_t>(sdk::elements<int64_t>(*rows.ids, "ids").size());
  if (count < 0 || count > capacity ||
      static_cast<int64_t>(sdk::elements<float>(*rows.weights, "weights").size()) < count * spec_.dim) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": ", count, " rows do not fit the tensors given, ",
              capacity, " ids and ", sdk::numel(*rows.weights), " weights");
  }
  if (rows.num_states != 0 && rows.num_states != num_states()) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\" has ", num_states(), " states, not ", rows.num_states);
  }
  for (uint32_t k = 0; k < rows.num_states; ++k) {
    if (static_cast<int64_t>(sdk::elements<float>(*rows.states[k], "state").size()) < count * state_width(k)) {
      sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": state ", k, " is too small for ", count, " rows");
    }
  }
}

int64_t TableStore::array_floats(int64_t count) const { return count * (spec_.dim * (1 + per_element_) + per_row_); }

// Lays arrays out in `memory`: the weights, then the states in their order.
RowArrays TableStore::arrays_in(float* memory, int64_t count) const {
  RowArrays arrays{};
  arrays.count = count;
  arrays.weights = memory;
  memory += count * spec_.dim;
  arrays.num_states = static_cast<int32_t>(num_states());
  for (uint32_t k = 0; k < num_states(); ++k) {
    arrays.per_row[k] = states_[k].per_row ? 1 : 0;
    arrays.index[k] = states_[k].index;
    arrays.states[k] = memory;
    memory += count * state_width(k);
  }
  return arrays;
}

void TableStore::export_rows(uint64_t& cursor, tsr_rows& rows, const TableView* device_view, Stream stream) const {
  const int64_t first = static_cast<int64_t>(std::min(cursor, static_cast<uint64_t>(spec_.rows)));
  const int64_t count = std::min(sdk::numel(*rows.ids), spec_.rows - first);
  check_rows(rows, count);
  DeviceScratch staging(host_, device_);
  RowArrays arrays = arrays_in(static_cast<float*>(staging.take(array_floats(count) * 4, stream)), count);
  arrays.first = first;
  launch_read_rows(device_view, storage_, arrays, stream);
  fetch(arrays, rows, stream);
  int64_t* ids = sdk::data_as<int64_t>(*rows.ids);
  for (int64_t i = 0; i < count; ++i) ids[i] = first + i;
  rows.count = count;
  cursor = static_cast<uint64_t>(first + count);
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

// Allocates device memory for the named rows, and copies their ids to it.
RowArrays TableStore::staged(std::span<const int64_t> ids, DeviceScratch& staging, Stream stream) const {
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t id_bytes = (count * 8 + 255) / 256 * 256;
  char* memory = static_cast<char*>(staging.take(id_bytes + array_floats(count) * 4, stream));
  RowArrays arrays = arrays_in(reinterpret_cast<float*>(memory + id_bytes), count);
  arrays.ids = reinterpret_cast<const int64_t*>(memory);
  memcpy_async(memory, ids.data(), ids.size_bytes(), stream);
  return arrays;
}

void TableStore::import_rows(const tsr_rows& rows, const TableView* device_view, Stream stream) const {
  DeviceScratch staging(host_, device_);
  RowArrays arrays = staged(known_ids(rows), staging, stream);
  if (rows.num_states == 0) arrays.num_states = 0;
  const auto put = [&](float* to, const DLTensor& from, int64_t floats) {
    memcpy_async(to, sdk::raw(from), static_cast<size_t>(floats) * 4, stream);
  };
  put(arrays.weights, *rows.weights, rows.count * spec_.dim);
  for (uint32_t k = 0; k < rows.num_states; ++k) put(arrays.states[k], *rows.states[k], rows.count * state_width(k));
  launch_write_rows(device_view, storage_, arrays, stream);
  stream_synchronize(stream);
}

void TableStore::read_named_rows(const tsr_rows& rows, const TableView* device_view, Stream stream) const {
  DeviceScratch staging(host_, device_);
  const RowArrays arrays = staged(known_ids(rows), staging, stream);
  launch_read_rows(device_view, storage_, arrays, stream);
  fetch(arrays, rows, stream);
}

// Copies rows to the caller's memory, and waits.
void TableStore::fetch(const RowArrays& arrays, const tsr_rows& rows, Stream stream) const {
  const auto copy = [&](const DLTensor& to, const float* from, int64_t floats) {
    memcpy_async(sdk::raw(to), from, static_cast<size_t>(floats) * 4, stream);
  };
  copy(*rows.weights, arrays.weights, arrays.count * spec_.dim);
  for (uint32_t k = 0; k < rows.num_states; ++k) copy(*rows.states[k], arrays.states[k], arrays.count * state_width(k));
  stream_synchronize(stream);
}

void TableStore::update_on_host(const sdk::OptimizerRef& optimizer, const tsr_update& update, int64_t count,
                                const int64_t* device_rows, const float* device_values, const TableView* device_view,
                                Stream stream) const {
  if (count == 0) return;
  DeviceScratch staging(host_, device_);
  const int64_t floats = array_floats(count);
  RowArrays arrays = arrays_in(static_cast<float*>(staging.take(floats * 4, stream)), count);
  arrays.ids = device_rows;
  std::vector<float> host(static_cast<size_t>(floats));
  std::vector<float> values(static_cast<size_t>(count * spec_.dim));
  launch_read_rows(device_view, storage_, arrays, stream);
  memcpy_async(host.data(), arrays.weights, host.size() * 4, stream);
  memcpy_async(values.data(), device_values, values.size() * 4, stream);
  stream_synchronize(stream);
  const RowArrays here = arrays_in(host.data(), count);
  std::vector<float*> weights;
  std::vector<const float*> gradients;
  std::vector<float*> states;
  for (int64_t i = 0; i < count; ++i) {
    weights.push_back(here.weights + i * spec_.dim);
    gradients.push_back(values.data() + i * spec_.dim);
  }
  for (uint32_t k = 0; k < num_states(); ++k) {
    for (int64_t i = 0; i < count; ++i) states.push_back(here.states[k] + i * state_width(k));
  }
  optimizer.update_rows(update, spec_.dim, count, weights.data(), gradients.data(), states.data());
  memcpy_async(arrays.weights, host.data(), host.size() * 4, stream);
  launch_write_rows(device_view, storage_, arrays, stream);
  stream_synchronize(stream);
}

}  // namespace tessera::gpu
