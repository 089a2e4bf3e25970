// The work of `bench lookup`: tables of one shape, and the batches that every kernel gets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/abi/kernel.h"
#include "tessera/device.h"
#include "tessera/lookup.h"
#include "tessera/tensor.h"

namespace tessera::cli {

struct LookupShape {
  int64_t tables = 1;
  int64_t rows = 1000000;  // rows per table
  int64_t dim = 64;
  int64_t batch = 2048;  // bags per table
  int64_t pooling = 20;  // ids per bag
  int batches = 16;
  std::string index_dist = "uniform";  // "uniform" or "zipf:A"
  DType weights = DType::kFloat32;     // data type of tables that train; also float16 or bfloat16
  std::optional<RowFormat> format;     // row format of quantized tables, which `weights` then does not describe
  double load = 0.5;                   // rows divided by capacity, for kernels whose rows come on demand
  DeviceStreamPtr stream;              // device of the kernels' rows, ids and outputs; null: host memory

  double alpha() const;  // the A of "zipf:A"; 0 for uniform. Throws UsageError for any other text
  int64_t bags() const { return tables * batch; }
  int64_t lookups() const { return bags() * pooling; }  // lookups per batch
  int64_t row_bytes() const { return format ? sdk::row_bytes(*format, dim) : dim * size_of(weights); }
  const char* dtype() const;   // "fp32", "fp16" or "bf16", or the format's name
  double rounding() const;     // largest relative error of storing a number in a table that trains
  double table_bytes() const;  // bytes of all tables; a double, so that no size overflows
};

// One call of a kernel. Every bag has `pooling` ids; ids are key-major as in a KeyedJaggedTensor. The sums go to
// [batch, tables * dim] as in a KeyedTensor.
class LookupBatch {
 public:
  // ids: int64 [lookups].
  LookupBatch(const LookupShape& shape, Tensor ids);
  // Bags of any length: offsets is int64 [bags + 1].
  LookupBatch(const LookupShape& shape, Tensor ids, Tensor offsets);
  LookupBatch(const LookupBatch&) = delete;
  LookupBatch& operator=(const LookupBatch&) = delete;

  const tsr_lookup& raw() const { return raw_; }
  const int64_t* ids() const { return ids_.data<int64_t>(); }  // only for a batch in host memory
  // Copies the batch to the shape's device.
  std::unique_ptr<LookupBatch> on_device(const LookupShape& shape) const;

 private:
  Tensor ids_, offsets_;
  std::vector<tsr_lookup_feature> features_;
  DLTensor raw_ids_, raw_offsets_;
  tsr_lookup raw_{};
};
using LookupBatches = std::vector<std::unique_ptr<LookupBatch>>;

// Batches that depend only on the shape. One permutation scatters Zipf's ranks over the rows, so that frequent rows are
// not neighbours.
LookupBatches lookup_batches(const LookupShape& shape);

// Mean number of different rows that a batch reads.
double distinct_rows(const LookupShape& shape, const LookupBatches& batches);

// The options of a kernel instance that holds such tables; `rows` has the rows of each.
LookupOptions lookup_options(const LookupShape& shape, const std::vector<int64_t>& rows);

// The initial rows [first, first + count) of table t, in [-1, 1), as float32 [count, dim].
void start_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out);

// The same rows after rounding to the table's data type.
void stored_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out);

// The gradient of the output, float32 [batch, tables * dim]: positive, so that sums of it cannot cancel.
Tensor output_gradient(const LookupShape& shape);

}  // namespace tessera::cli
