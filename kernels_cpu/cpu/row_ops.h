// The inner loops of the cpu kernel, compiled for several instruction sets (row_ops.cc), with a function table for
// each.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/config.h"
#include "entries.h"

namespace tessera_cpu {

class RowBlock;

// Bags of one feature, or a run of them.
struct Pool {
  const char* table;
  int64_t row_bytes;
  int64_t dim;
  const void* ids;  // ids of the batch
  // Bag b has positions [offsets[b], offsets[b + 1]), or if this is NULL, [begin + b, begin + b + 1).
  const void* offsets;
  bool wide_offsets;  // offsets are int64
  bool mean;
  int64_t begin;
  int64_t bags;
  int64_t ids_end;       // prefetching looks ahead up to this position
  int64_t ahead;         // prefetch distance in ids
  bool to_l2;            // true: large rows are prefetched only into the L2 cache
  const float* weights;  // per position, or NULL
  Storage storage;       // of the output
  char* output;          // row 0
  int64_t output_bytes;  // from row to row
  const int32_t* rows;   // output rows of the bags; NULL: bag b has row b

  char* output_of(int64_t bag) const { return output + (rows == nullptr ? bag : rows[bag]) * output_bytes; }

  int64_t first(int64_t bag) const {
    if (offsets == nullptr) return begin + bag;
    return wide_offsets ? static_cast<const int64_t*>(offsets)[bag] : static_cast<const int32_t*>(offsets)[bag];
  }
};
using PoolFunction = void (*)(const Pool& pool);

// A good Pool::ahead for rows of this size. Rows in flight hide the memory's latency. They are about as many cache
// lines as a processor can have requests for, and a small share of the L1 cache.
inline int64_t rows_ahead(int64_t row_bytes) { return std::clamp<int64_t>(16384 / row_bytes, 16, 128); }

// A good Pool::to_l2: processors other than AMD's can have more requests in flight for the L2 cache than for the L1
// cache. For rows of 512 bytes, the wrong choice costs a quarter.
bool prefetch_to_l2();

// Entries of one table, sorted so that entries of the same row are neighbours, and the target of each row's sum.
struct Walk {
  const PlainEntry* plain;  // either `plain` or `full` is set
  const FullEntry* full;
  int64_t count;
  // Output row i is output_rows[i], or if that is NULL, at gradient + i * output_row_bytes with scale 1.
  const OutputRow* output_rows;
  const char* gradient;
  int64_t output_row_bytes;
  Storage storage;  // of gradients
  float grad_scale;
  float max_gradient;  // 0: no clamp

  int64_t dim;
  const char* table;  // rows, for prefetching and for grad_weights
  int64_t row_bytes;
  Storage row_storage;
  int64_t ahead;
  float* grad_weights;  // per position, or NULL; only with full entries

  // Either `block` is set, and rows are updated, or the other two are, and rows and sums are written to them.
  RowBlock* block;
  int64_t* out_rows;
  float* out_values;
};

struct RowOps {
  // SUM, MEAN and sequences of rows of `dim` columns.
  PoolFunction (*pool)(Storage rows, bool wide_ids, bool weighted, int64_t dim);
  // MAX; `winners` is [bags, dim] and may be NULL.
  void (*pool_max)(const Pool& pool, Storage rows, bool wide_ids, int32_t* winners);
  void (*walk)(const Walk& walk);
  // Adds the gradients of the ids in `run`, or if that is NULL, of the walk's plain entries, to `sums`. The rows may be
  // in any order. Gradients are float32.
  void (*add_gradients)(const Walk& walk, const IdRun* run, RowSums* sums);
  void (*widen)(Storage from, const void* row, int64_t dim, float* out);
  void (*narrow)(Storage to, const float* row, int64_t dim, void* out);
};

// The best loops for this processor, or those that TESSERA_ISA names (sdk/isa.h).
const RowOps& best_row_ops();

}  // namespace tessera_cpu
