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
  const void*
      offsets;  // of these bags: bag b has positions [offsets[b], offsets[b + 1]); NULL: [begin + b, begin + b + 1)
  bool wide_offsets;  // offsets are int64
  bool mean;
  int64_t begin;
  int64_t bags;
  int64_t ids_end;       // prefetching looks ahead up to this position
  int64_t ahead;         // prefetch distance in ids
  bool to_l2;            // prefetch large rows only into the L2 cache
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

// A good Pool::ahead for rows of this size. The rows in flight hide memory latency: as many cache lines as processors
// keep requests for, within a small share of the L1 cache.
inline int64_t rows_ahead(int64_t row_bytes) { return std::clamp<int64_t>(16384 / row_bytes, 16, 128); }

// A good Pool::to_l2: processors other than AMD's can have more requests in flight for the L2 cache than for the L1
// cache. For rows of 512 bytes, the wrong choice costs a quarter.
bool prefetch_to_l2();

// Entries of one table, sorted so that those of a row are neighbours, and the use of each row's sum.
struct Walk {
  const PlainEntry* plain;  // one of the two is set
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

  // One of the two is set: rows are updated, or rows and sums are written out.
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
  // Adds to `sums` what walk() would sum for the ids of `run`, or if that is NULL, for the walk's plain entries, in any
  // order of rows. Gradients are float32.
  void (*add_gradients)(const Walk& walk, const IdRun* run, RowSums* sums);
  void (*widen)(Storage from, const void* row, int64_t dim, float* out);
  void (*narrow)(Storage to, const float* row, int64_t dim, void* out);
};

// The best loops for this processor, or those that TESSERA_ISA names (sdk/isa.h).
const RowOps& best_row_ops();

}  // namespace tessera_cpu
