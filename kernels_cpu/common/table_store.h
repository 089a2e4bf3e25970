// The rows of one table and their optimizer state, in the host's memory; what both CPU kernels do with them.
#pragma once

#include <tessera/sdk/draft/row_marks.h>

#include <cstdint>
#include <vector>

#include "config.h"

namespace tessera_cpu {

// Rows lie one after the other. States of a kind (per element, per row) share one block, those of one row side by side,
// so that an update touches one run of memory for each kind. States per table are one value that all rows show: it goes
// out with each of them, and comes in with the last one.
class TableStore {
 public:
  // Without memory yet: make_tables gives it.
  TableStore(TableSpec spec, Storage storage, const sdk::OptimizerRef& optimizer);

  const std::string& name() const { return spec_.name; }
  int64_t rows() const { return spec_.rows; }
  int64_t dim() const { return spec_.dim; }
  Storage storage() const { return storage_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t row_and_state_bytes() const { return row_bytes_ + element_bytes_ + per_row_bytes_; }
  char* row(int64_t r) const { return weights_ + r * row_bytes_; }
  void read_rows(int64_t first, int64_t count, float* out) const;  // one behind the other
  void write_row(int64_t r, const float* values);

  uint32_t num_states() const { return static_cast<uint32_t>(states_.size()); }
  float* state(uint32_t k, int64_t r) const { return states_[k].data + r * states_[k].stride; }
  int64_t state_width(uint32_t k) const { return states_[k].width; }
  int64_t state_stride(uint32_t k) const { return states_[k].stride; }

  uint64_t weight_bytes() const { return static_cast<uint64_t>(spec_.rows * row_bytes_); }
  uint64_t state_bytes() const {
    return static_cast<uint64_t>(spec_.rows * (element_bytes_ + per_row_bytes_) + per_table_bytes_);
  }
  // Before rows are updated: states per table, once in each step.
  void begin_step(const sdk::OptimizerRef& optimizer, const tsr_update& update);

  // kernel/1's functions of these names.
  tsr_kernel_stats stats(uint64_t other_bytes, uint64_t lookups) const;
  void export_rows(uint64_t& cursor, tsr_rows& rows) const;
  void import_rows(const tsr_rows& rows);
  void save(const tsr_stream_io& io) const;
  void load(const tsr_stream_io& io);

  // Rows that were written since marks().start(), which the kernel adds; import_rows and load do by themselves.
  sdk::RowMarks& marks() { return marks_; }
  const sdk::RowMarks& marks() const { return marks_; }
  void export_marked(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const;

 private:
  friend sdk::Buffer make_tables(sdk::Host host, const Config& config, std::vector<TableStore>* tables);
  int64_t block_bytes() const;
  void place(char* block);  // of block_bytes(), aligned to 64, all 0
  void start_states(sdk::Host host);

  struct State {
    float* data;     // of row 0
    int64_t stride;  // floats from row to row; 0: one value for all rows
    int64_t width;   // floats in a row: 1 or dim
    float start;     // of each
    int32_t kind;
  };
  void read_states(uint32_t k, int64_t first, int64_t count, float* out) const;
  void check_rows(const tsr_rows& rows, int64_t count) const;
  void copy_rows(int64_t first, int64_t count, int64_t to, const tsr_rows& rows) const;
  int64_t& bytes_of_kind(int32_t kind) {
    return kind == TSR_STATE_PER_ELEMENT ? element_bytes_
           : kind == TSR_STATE_PER_ROW   ? per_row_bytes_
                                         : per_table_bytes_;
  }

  TableSpec spec_;
  Storage storage_;
  int64_t row_bytes_;
  int64_t element_bytes_ = 0;  // of a row's states per element
  int64_t per_row_bytes_ = 0;  // and of those per row
  int64_t per_table_bytes_ = 0;
  int64_t step_ = 0;  // of the last begin_step
  char* weights_ = nullptr;
  std::vector<State> states_;
  sdk::RowMarks marks_;
};

// The config's tables, rows 0 and states as they start, in one block of memory: huge pages serve small tables and
// states too. The tables use the block and do not own it.
sdk::Buffer make_tables(sdk::Host host, const Config& config, std::vector<TableStore>* tables);

// The unique ascending rows and their gradients that apply() is given, checked against the table.
struct RowGradients {
  RowGradients(const TableStore& table, const DLTensor& rows, const DLTensor& values);
  const int64_t* rows;
  const float* values;
  int64_t count;
};

}  // namespace tessera_cpu
