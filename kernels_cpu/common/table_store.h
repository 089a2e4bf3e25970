// The rows of one table and their optimizer state, in the host's memory; what both CPU kernels do with them.
#pragma once

#include <cstdint>
#include <vector>

#include "config.h"

namespace tessera_cpu {

// Rows lie one after the other. States of a kind (per element, per row) share one block, those of one row side by side,
// so that an update touches one run of memory for each kind.
class TableStore {
 public:
  // Everything 0.
  TableStore(sdk::Host host, TableSpec spec, Storage storage, const sdk::OptimizerRef& optimizer);

  const std::string& name() const { return spec_.name; }
  int64_t rows() const { return spec_.rows; }
  int64_t dim() const { return spec_.dim; }
  Storage storage() const { return storage_; }
  int64_t row_bytes() const { return row_bytes_; }
  char* row(int64_t r) const { return weights_.data<char>() + r * row_bytes_; }
  void read_row(int64_t r, float* out) const;
  void write_row(int64_t r, const float* values);

  uint32_t num_states() const { return static_cast<uint32_t>(states_.size()); }
  float* state(uint32_t k, int64_t r) const { return states_[k].data + r * states_[k].stride; }
  int64_t state_width(uint32_t k) const { return states_[k].width; }

  uint64_t weight_bytes() const { return weights_.bytes(); }
  uint64_t state_bytes() const { return elements_.bytes() + per_row_.bytes(); }

  // kernel/1's functions of these names.
  void export_rows(uint64_t& cursor, tsr_rows& rows) const;
  void import_rows(const tsr_rows& rows);
  void save(const tsr_stream_io& io) const;
  void load(const tsr_stream_io& io);

 private:
  struct State {
    float* data;     // of row 0
    int64_t stride;  // floats from row to row
    int64_t width;   // floats in a row: 1 or dim
  };
  void check_rows(const tsr_rows& rows, int64_t count) const;

  TableSpec spec_;
  Storage storage_;
  int64_t row_bytes_;
  sdk::Buffer weights_;
  sdk::Buffer elements_;
  sdk::Buffer per_row_;
  std::vector<State> states_;
};

// The unique ascending rows and their gradients that apply() is given, checked against the table.
struct RowGradients {
  RowGradients(const TableStore& table, const DLTensor& rows, const DLTensor& values);
  const int64_t* rows;
  const float* values;
  int64_t count;
};

}  // namespace tessera_cpu
