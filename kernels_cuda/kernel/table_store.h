// The rows of one table and their optimizer state on the device, with import and export through host memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/rows.h"
#include "kernel/config.h"
#include "kernel/memory.h"

namespace tessera::gpu {

// Rows are contiguous. The states per element share one block of memory, and the states per row another; in each, the
// states of one row are contiguous. Every function that moves rows waits for the stream.
class TableStore {
 public:
  // Sets rows to 0 and states to their start values, in the order of `stream`. Throws Failure(TSR_RESOURCE_EXHAUSTED),
  // which names the table and the bytes that it needs.
  TableStore(sdk::Host host, DLDevice device, TableSpec spec, Storage storage, const sdk::OptimizerRef& optimizer,
             Stream stream);

  const TableSpec& spec() const { return spec_; }
  // `first_key` is the number of rows of earlier tables.
  TableView view(int64_t first_key) const;

  uint64_t weight_bytes() const { return static_cast<uint64_t>(spec_.rows * spec_.dim * bytes_of(storage_)); }
  uint64_t state_bytes() const { return static_cast<uint64_t>(4 * spec_.rows * (per_element_ * spec_.dim + per_row_)); }
  uint32_t num_states() const { return static_cast<uint32_t>(states_.size()); }
  int64_t state_width(uint32_t k) const { return states_[k].per_row ? 1 : spec_.dim; }

  // kernel/1's functions with these names. `device_view` is this table's view in device memory.
  void export_rows(uint64_t& cursor, tsr_rows& rows, const TableView* device_view, Stream stream) const;
  void import_rows(const tsr_rows& rows, const TableView* device_view, Stream stream) const;
  void read_named_rows(const tsr_rows& rows, const TableView* device_view, Stream stream) const;
  // The update of kernel/1's apply for an optimizer that does not run on the device: rows are copied to the host and
  // back.
  void update_on_host(const sdk::OptimizerRef& optimizer, const tsr_update& update, int64_t count,
                      const int64_t* device_rows, const float* device_values, const TableView* device_view,
                      Stream stream) const;

 private:
  struct State {
    bool per_row;
    int32_t index;  // index among the states of its kind
    float start;    // start value
  };
  void start_states(const DeviceScratch& memory, bool per_row, Stream stream) const;
  void check_rows(const tsr_rows& rows, int64_t count) const;
  RowArrays arrays_in(float* memory, int64_t count) const;
  int64_t array_floats(int64_t count) const;
  std::span<const int64_t> known_ids(const tsr_rows& rows) const;
  RowArrays staged(std::span<const int64_t> ids, DeviceScratch& staging, Stream stream) const;
  void fetch(const RowArrays& arrays, const tsr_rows& rows, Stream stream) const;

  sdk::Host host_;
  DLDevice device_;
  TableSpec spec_;
  Storage storage_;
  std::vector<State> states_;
  int64_t per_element_ = 0;
  int64_t per_row_ = 0;
  DeviceScratch weights_;
  DeviceScratch element_states_;
  DeviceScratch row_states_;
};

}  // namespace tessera::gpu
