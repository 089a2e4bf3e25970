// The work of `bench lookup`: tables of one shape, and batches that every kernel is given alike.
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
  int64_t rows = 1000000;  // of each table
  int64_t dim = 64;
  int64_t batch = 2048;  // bags of each table
  int64_t pooling = 20;  // ids of each bag
  int batches = 16;
  std::string index_dist = "uniform";  // or "zipf:A"
  DType weights = DType::kFloat32;     // of tables that train; float16 or bfloat16 too
  std::optional<RowFormat> format;     // of quantized tables, instead
  double load = 0.5;                   // rows over those that there is room for, of kernels whose rows come on demand
  DeviceStreamPtr stream;              // where the kernels' rows, ids and outputs are; null: host memory

  double alpha() const;  // A; 0 for uniform. UsageError for any other text
  int64_t bags() const { return tables * batch; }
  int64_t lookups() const { return bags() * pooling; }  // of a batch
  int64_t row_bytes() const { return format ? sdk::row_bytes(*format, dim) : dim * size_of(weights); }
  const char* dtype() const;   // "fp32", "fp16", "bf16", or the format's name
  double rounding() const;     // the largest relative error of storing a number in a table that trains
  double table_bytes() const;  // of all tables; a double, for any number of them
};

// One call of a kernel: every bag has `pooling` ids, ids are key-major as in a KeyedJaggedTensor, and the sums go to
// [batch, tables * dim] as in a KeyedTensor.
class LookupBatch {
 public:
  // ids: int64 [lookups].
  LookupBatch(const LookupShape& shape, Tensor ids);
  // Bags of any length: offsets int64 [bags + 1], beside the ids.
  LookupBatch(const LookupShape& shape, Tensor ids, Tensor offsets);
  LookupBatch(const LookupBatch&) = delete;
  LookupBatch& operator=(const LookupBatch&) = delete;

  const tsr_lookup& raw() const { return raw_; }
  const int64_t* ids() const { return ids_.data<int64_t>(); }  // of a batch in host memory
  // The same on the shape's device.
  std::unique_ptr<LookupBatch> on_device(const LookupShape& shape) const;

 private:
  Tensor ids_, offsets_;
  std::vector<tsr_lookup_feature> features_;
  DLTensor raw_ids_, raw_offsets_;
  tsr_lookup raw_{};
};
using LookupBatches = std::vector<std::unique_ptr<LookupBatch>>;

// Batches that depend on the shape alone. Zipf's ranks are scattered over the rows by one permutation, so that frequent
// rows are not neighbours.
LookupBatches lookup_batches(const LookupShape& shape);

// Different rows that a batch reads, in the mean of the batches.
double distinct_rows(const LookupShape& shape, const LookupBatches& batches);

// The options of a kernel instance that holds such tables, of `rows` each.
LookupOptions lookup_options(const LookupShape& shape, const std::vector<int64_t>& rows);

// The rows [first, first + count) that table t starts with, in [-1, 1), as float32 [count, dim].
void start_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out);

// The same as they are once they were stored.
void stored_rows(const LookupShape& shape, int64_t t, int64_t first, int64_t count, float* out);

// The gradient of the output, float32 [batch, tables * dim]: positive, so that sums of it cannot cancel.
Tensor output_gradient(const LookupShape& shape);

}  // namespace tessera::cli
