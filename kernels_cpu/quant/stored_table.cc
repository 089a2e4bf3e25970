#include "stored_table.h"

#include <algorithm>
#include <cstring>

namespace tessera_cpu {
StoredTable::StoredTable(sdk::Host host, TableSpec spec, sdk::RowFormat format)
    : host_(host),
      spec_(std::move(spec)),
      format_(format),
      data_bytes_(sdk::row_bytes(format, spec_.dim)),
      stride_(data_bytes_) {
  if (spec_.rows > 0 && stride_ > INT64_MAX / 16 / spec_.rows) {
    sdk::fail(TSR_RESOURCE_EXHAUSTED, "table \"", spec_.name, "\": ", spec_.rows, " rows of ", spec_.dim,
              " columns do not fit in any memory");
  }
}

void StoredTable::own_rows() {
  const int64_t bytes = spec_.rows * data_bytes_;
  own_ = sdk::Buffer(host_, static_cast<uint64_t>(bytes));
  if (bytes > 0) std::memset(own_.data(), 0, static_cast<size_t>(bytes));
  stride_ = data_bytes_;
  rows_ = own_.data<char>();
}

int64_t StoredTable::checked_count(const tsr_rows& rows, int64_t count) const {
  const int64_t capacity = static_cast<int64_t>(sdk::elements<int64_t>(*rows.ids, "ids").size());
  if (count < 0 || count > capacity || sdk::numel(*rows.weights) < count * spec_.dim) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": ", count, " rows do not fit the tensors given, ",
              capacity, " ids and ", sdk::numel(*rows.weights), " weights");
  }
  if (rows.num_states != 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\" only infers: it has no optimizer states");
  }
  return count;
}

void StoredTable::import_rows(const tsr_rows& rows) {
  const int64_t count = checked_count(rows, rows.count);
  const int64_t* ids = sdk::elements<int64_t>(*rows.ids, "ids").data();
  const float* values = sdk::elements<float>(*rows.weights, "weights").data();
  const int64_t multiple = sdk::info_of(format_).dim_multiple;
  if (spec_.dim % multiple != 0) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\" has ", spec_.dim, " columns, but rows quantize to ",
              sdk::to_string(format_), " in multiples of ", multiple, " columns");
  }
  if (rows_ != nullptr && rows_ != own_.data<char>()) {
    sdk::fail(TSR_FAILED_PRECONDITION, "table \"", spec_.name,
              "\": its rows are the caller's, adopted to be read only");
  }
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= spec_.rows) {
      sdk::fail(TSR_OUT_OF_RANGE, "table \"", spec_.name, "\" has no row ", ids[i], ": it has ", spec_.rows, " rows");
    }
    const int64_t at = sdk::first_non_finite(values + i * spec_.dim, spec_.dim);
    if (at >= 0) {
      sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\", row ", ids[i], ": its value ",
                values[i * spec_.dim + at], " in column ", at, " is not finite and cannot be quantized");
    }
    if (const int64_t clipped = sdk::first_clipped(format_, values + i * spec_.dim, spec_.dim); clipped >= 0) {
      sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\", row ", ids[i], ": its value ",
                values[i * spec_.dim + clipped], " in column ", clipped, " is beyond the largest of ",
                sdk::to_string(format_), ", ", sdk::Float8{}.largest());
    }
  }
  (void)this->rows();
  for (int64_t i = 0; i < count; ++i) {
    sdk::encode_row(format_, values + i * spec_.dim, spec_.dim, own_.data<char>() + ids[i] * data_bytes_);
  }
}

void StoredTable::export_rows(uint64_t& cursor, tsr_rows& rows) {
  const int64_t first = static_cast<int64_t>(std::min(cursor, static_cast<uint64_t>(spec_.rows)));
  const int64_t count = checked_count(rows, std::min(sdk::numel(*rows.ids), spec_.rows - first));
  int64_t* ids = sdk::elements<int64_t>(*rows.ids, "ids").data();
  float* values = sdk::elements<float>(*rows.weights, "weights").data();
  const char* stored = this->rows();
  for (int64_t i = 0; i < count; ++i) {
    ids[i] = first + i;
    sdk::decode_row(format_, stored + ids[i] * stride_, spec_.dim, values + i * spec_.dim);
  }
  rows.count = count;
  cursor = static_cast<uint64_t>(first + count);
}

void StoredTable::adopt_rows(const tsr_stored_rows& rows) {
  const auto needed = spec_.rows == 0 ? 0
                                      : (static_cast<uint64_t>(spec_.rows) - 1) * static_cast<uint64_t>(rows.stride) +
                                            static_cast<uint64_t>(data_bytes_);
  if (rows.stride < data_bytes_ || (spec_.rows > 0 && rows.stride > INT64_MAX / 16 / spec_.rows) ||
      rows.size < needed || (rows.bytes == nullptr && spec_.rows > 0)) {
    sdk::fail(TSR_INVALID_ARGUMENT, "table \"", spec_.name, "\": ", spec_.rows, " rows of ", spec_.dim, " columns in ",
              sdk::to_string(format_), " take ", data_bytes_, " bytes each, which ", rows.size,
              " bytes given in steps of ", rows.stride, " do not hold");
  }
  own_ = sdk::Buffer();
  rows_ = static_cast<const char*>(rows.bytes);
  stride_ = rows.stride;
}

}  // namespace tessera_cpu
