// gpu/jagged.h - operations on jagged features on the device, before their lookup: checking bounds, computing offsets
// from lengths, dividing ids by the ranks that own them, reordering features.
//
// All arrays are device memory and keyed-jagged: `features` runs of `batch` bags, feature by feature, with consecutive
// ids; bag i has the ids [offsets[i], offsets[i + 1]). Everything is enqueued on the stream. Functions that take
// `scratch` need scan_scratch_bytes(number of lengths) of it, aligned to 8 bytes; two calls that may overlap need two.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"
#include "tessera/abi/draft/device_ops.h"

namespace tessera::gpu {

// int32 or int64 numbers that are written.
struct IndicesOut {
  void* data;
  bool wide;
};
inline Indices read(const IndicesOut& out) { return {out.data, out.wide}; }

struct JaggedView {
  int32_t features;
  int64_t batch;
  int64_t num_ids;
  Indices ids;
  Indices offsets;       // [features * batch + 1]
  const float* weights;  // [num_ids], or NULL
};

// The result of a bounds check, see abi/draft/device_ops.h.
using BoundsReport = tsr_bounds_report;

// `rows` has the number of rows per feature. `repaired`, which is as wide as the ids and may be the same memory, gets
// the ids with 0 in place of bad ones. If it is NULL, only the report is written. Counts are integers, so they do not
// depend on the order of blocks.
void launch_check_bounds(const JaggedView& input, const int64_t* rows, void* repaired, BoundsReport* report,
                         Stream stream);

size_t scan_scratch_bytes(int64_t lengths);
// offsets[i] = the sum of the lengths before i, for i in [0, count].
void launch_offsets(const Indices& lengths, int64_t count, const IndicesOut& offsets, void* scratch, Stream stream);

// Ids divided by the rank that owns their rows: rank r has the rows [r * block, (r + 1) * block) of a feature. Output
// bags are in order of rank, feature, bag. In each bag, ids keep their order and count from their rank's first row.
struct Bucketized {
  IndicesOut lengths;  // [ranks * bags]
  IndicesOut offsets;  // [ranks * bags + 1]
  void* ids;           // [num_ids], as wide as the input's
  float* weights;      // [num_ids], or NULL
  int64_t* positions;  // [num_ids]: the new position of each input id, or NULL
};
// `blocks` has the rows per rank, by feature; every id is in [0, ranks * block). Takes 3 launches and three fills.
void launch_bucketize(const JaggedView& input, int32_t ranks, const int64_t* blocks, const Bucketized& output,
                      void* scratch, Stream stream);

// Feature i of the output is feature permute[i] of the input; features may be left out or repeated.
struct Permuted {
  IndicesOut lengths;  // [outputs * batch]
  IndicesOut offsets;  // [outputs * batch + 1]
  void* ids;           // with space for all ids of the output, as wide as the input's
  float* weights;      // with space for as many, or NULL
};
void launch_permute(const JaggedView& input, int32_t outputs, const int32_t* permute, const Permuted& output,
                    void* scratch, Stream stream);

}  // namespace tessera::gpu
