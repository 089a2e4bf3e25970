// The stored rows of one table: the kernel's own, or the caller's.
#pragma once

#include <cstdint>
#include <string>

#include "common/config.h"
#include "tessera/sdk/row_format.h"

namespace tessera_cpu {

class StoredTable {
 public:
  // Has no rows in memory yet; they read as 0.
  StoredTable(sdk::Host host, TableSpec spec, sdk::RowFormat format);

  int64_t num_rows() const { return spec_.rows; }
  int64_t dim() const { return spec_.dim; }
  int64_t stride() const { return stride_; }
  int64_t data_bytes() const { return data_bytes_; }
  // The address of row 0. Allocates the table's own rows if there are none, so it must not be called while other
  // threads use the table.
  const char* rows() {
    if (rows_ == nullptr && spec_.rows > 0) own_rows();
    return rows_;
  }
  uint64_t weight_bytes() const { return own_.bytes(); }

  // kernel/1's functions with these names. Imported rows are quantized; rows with NaN or infinity are refused.
  void import_rows(const tsr_rows& rows);
  void export_rows(uint64_t& cursor, tsr_rows& rows);
  void adopt_rows(const tsr_stored_rows& rows);

 private:
  void own_rows();
  int64_t checked_count(const tsr_rows& rows, int64_t count) const;

  sdk::Host host_;
  TableSpec spec_;
  sdk::RowFormat format_;
  int64_t data_bytes_;
  int64_t stride_;
  sdk::Buffer own_;
  const char* rows_ = nullptr;
};

}  // namespace tessera_cpu
