// The rows of one table and their optimizer state in host memory, with the operations that both CPU kernels share.
#pragma once

#include <tessera/sdk/draft/row_marks.h>
#include <tessera/sdk/draft/rows_view.h>

#include <cstdint>
#include <span>
#include <vector>

#include "config.h"

namespace tessera_cpu {

// Rows are contiguous. The states per element share one block of memory, and the states per row another. In each, the
// states of one row are contiguous, so that an update touches one run of memory per block.
class TableStore {
 public:
  // Has no memory yet; make_tables provides it.
  TableStore(TableSpec spec, Storage storage, const sdk::OptimizerRef& optimizer);

  const std::string& name() const { return spec_.name; }
  int64_t rows() const { return spec_.rows; }
  int64_t dim() const { return spec_.dim; }
  Storage storage() const { return storage_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t row_and_state_bytes() const { return row_bytes_ + element_bytes_ + per_row_bytes_; }
  char* row(int64_t r) const { return weights_ + r * row_bytes_; }
  void read_rows(int64_t first, int64_t count, float* out) const;  // consecutive rows
  void write_row(int64_t r, const float* values);
  // Writes a row after its update in a step, rounded as the table's options say.
  void write_updated_row(int64_t r, int64_t step, const float* values);
  const Rounding& rounding() const { return spec_.rounding; }

  uint32_t num_states() const { return static_cast<uint32_t>(states_.size()); }
  float* state(uint32_t k, int64_t r) const { return states_[k].data + r * states_[k].stride; }
  int64_t state_width(uint32_t k) const { return states_[k].width; }
  int64_t state_stride(uint32_t k) const { return states_[k].stride; }

  uint64_t weight_bytes() const { return static_cast<uint64_t>(spec_.rows * row_bytes_); }
  uint64_t state_bytes() const { return static_cast<uint64_t>(spec_.rows * (element_bytes_ + per_row_bytes_)); }

  // kernel/1's functions with these names.
  tsr_kernel_stats stats(uint64_t other_bytes, uint64_t lookups) const;
  void export_rows(uint64_t& cursor, tsr_rows& rows) const;
  void import_rows(const tsr_rows& rows);
  void read_named_rows(const tsr_rows& rows) const;

  // The marks of rows written since marks().start(). The kernel adds updated rows; import_rows adds its own.
  sdk::RowMarks& marks() { return marks_; }
  const sdk::RowMarks& marks() const { return marks_; }
  void export_marked(uint32_t follower, uint64_t& cursor, tsr_rows& rows) const;
  // Starts a follower's changes anew. All rows of a viewed table count as changed.
  void mark(uint32_t follower);

  // The view of abi/draft/rows_view.h.
  tsr_matrix_view view(int32_t state);

 private:
  friend sdk::Buffer make_tables(sdk::Host host, const Config& config, std::vector<TableStore>* tables);
  int64_t block_bytes() const;
  void place(char* block);  // `block` has block_bytes(), aligned to 64, all 0
  void start_states(sdk::Host host);

  struct State {
    float* data;     // address of row 0
    int64_t stride;  // floats from row to row
    int64_t width;   // floats per row: 1 or dim
    float start;     // start value
    int32_t kind;
  };
  void read_states(uint32_t k, int64_t first, int64_t count, float* out) const;
  void check_rows(const tsr_rows& rows, int64_t count) const;
  std::span<const int64_t> known_ids(const tsr_rows& rows) const;
  void copy_rows(int64_t first, int64_t count, int64_t to, const tsr_rows& rows) const;
  int64_t& bytes_of_kind(int32_t kind) { return kind == TSR_STATE_PER_ELEMENT ? element_bytes_ : per_row_bytes_; }

  TableSpec spec_;
  Storage storage_;
  int64_t row_bytes_;
  int64_t element_bytes_ = 0;  // bytes of a row's states per element
  int64_t per_row_bytes_ = 0;  // bytes of a row's states per row
  char* weights_ = nullptr;
  std::vector<State> states_;
  sdk::RowMarks marks_;
  bool viewed_ = false;  // a view was given out, so that rows may change without a call
};

// The config's tables, with rows 0 and start states, in one block of memory, so that small tables and states also
// benefit from huge pages. The tables use the block but do not own it.
sdk::Buffer make_tables(sdk::Host host, const Config& config, std::vector<TableStore>* tables);

// The unique ascending rows and their gradients passed to apply(), checked against the table.
struct RowGradients {
  RowGradients(const TableStore& table, const DLTensor& rows, const DLTensor& values);
  const int64_t* rows;
  const float* values;
  int64_t count;
};

}  // namespace tessera_cpu
