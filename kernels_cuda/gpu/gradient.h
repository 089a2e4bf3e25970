// gpu/gradient.h - backward on the device: from the ids of a batch to one gradient for each row that occurred.
//
//   entries   one for each id of each bag, in order of feature, bag, position; its key is the row's
//   sort      stable, by key
// units     a unit is what one group of lanes sums: neighbouring entries of one row in sorted order. Entries are split
//             at indices that are a multiple of unit(), unless less than half a unit is on both sides. All units of a
//             row form a run
//   reduce    a run of one unit is done at once. For longer runs, the sums of the units are kept ("partials"), and a
//             second launch adds them in order, with one block per run
//
// So the order of every sum depends only on the batch. The host reads nothing back: sizes stay on the device, and grids
// are as large as the upper bounds of these sizes need.
#pragma once

#include "gpu/gpu.h"
#include "gpu/views.h"

namespace tessera::gpu {

// Upper bounds of a batch's sizes, which the host knows.
struct GradientSizes {
  int64_t entries;
  int64_t bags;
  int32_t features;
  int32_t max_dim;
  int64_t keys;  // rows of all tables
  bool wants_runs;

  bool wide_keys() const { return keys > int64_t{UINT32_MAX}; }
  int32_t key_bits() const;
  // The largest number of entries of a unit.
  int64_t unit() const { return int64_t{1} << unit_shift(); }
  int32_t unit_shift() const { return entries <= (int64_t{1} << 18) ? 4 : 6; }
  int64_t blocks() const { return (entries + unit() - 1) / unit(); }
};

struct alignas(16) Entry {
  int64_t output;  // index where its bag's gradient begins
  float scale;     // factor: the id's weight, divided by the bag's length for MEAN
  int32_t reserved;
};

// Device memory of one backward, all of it scratch.
struct GradientWork {
  uint32_t* entries_count;
  uint32_t* units_count;
  uint32_t* runs_count;
  uint32_t* long_count;
  void* zeroed;  // the part that is initially zero, units_count to segment_words
  int64_t zeroed_words;
  uint32_t* tickets;
  uint32_t* histogram;
  uint32_t* sort_states;
  uint64_t* segment_words;
  int64_t* first_entry;  // per feature
  Entry* entries;
  void* keys[2];
  uint32_t* indices[2];
  uint32_t* unit_start;  // the first entry of each unit in sorted order, and the end of the last
  uint32_t* unit_run;
  uint32_t* long_starts;  // the first entries of runs of several units, unordered
  int64_t* run_keys;      // only with wants_runs
  float* partials;        // [2 * blocks, max_dim rounded up to 4]
  int32_t sorted;         // which of keys[] and indices[] has the result
  bool wide_keys;
  int32_t unit_shift;
  int32_t partial_stride;
};

// The bytes that a backward needs, and its arrays in memory at `base`, aligned to 256 bytes.
uint64_t gradient_bytes(const GradientSizes& sizes);
GradientWork gradient_work(const GradientSizes& sizes, void* base);

// Makes entries, sorts them and finds units: 3 launches, and one for each 8 bits of the keys.
void launch_gradient_plan(const BatchView& batch, const GradientSizes& sizes, GradientWork& work, Stream stream);

// Sets starts[t] to the number of runs of earlier tables, and starts[num_tables] to that of all. Requires wants_runs.
void launch_table_runs(const BatchView& batch, const GradientWork& work, uint32_t* starts, Stream stream);

}  // namespace tessera::gpu
