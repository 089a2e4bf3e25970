// Backward's first pass over a table: updates rows that occur once in the batch, in order of position.
//
// These rows need no sorting and no sums, and a bag's gradient is in the L1 cache for all of its ids. Entries of rows
// that occur again are left for sort_by_row and RowOps::walk.
#pragma once

#include <cstdint>

#include "entries.h"
#include "row_block.h"
#include "row_ops.h"

namespace tessera_cpu {

class OncePass {
 public:
  // `walk` has the block and describes the gradients of output rows; `once` has all entries of the piece.
  OncePass(const Walk& walk, const OnceMap& once, const RowOps& ops);

  // Writes the remaining entries to `again`, which has space for all; returns their end. Rows may wait in the block
  // afterwards.
  PlainEntry* run(const IdRun& ids, PlainEntry* again) const;
  // The same for existing entries; `again` may be equal to `entries`.
  PlainEntry* run(const PlainEntry* entries, int64_t count, PlainEntry* again) const;

 private:
  template <class Id, class Sink>
  PlainEntry* pass(const IdRun& run, Sink& sink, PlainEntry* again) const;
  template <class Sink>
  PlainEntry* pass(const PlainEntry* entries, int64_t count, Sink& sink, PlainEntry* again) const;
  const char* address(uint32_t output_row) const {
    return walk_.output_rows == nullptr ? walk_.gradient + output_row * walk_.output_row_bytes
                                        : walk_.output_rows[output_row].gradient;
  }
  void prefetch_gradient(uint32_t output_row) const {
    for (int64_t at = 0; at < gradient_bytes_; at += 64) __builtin_prefetch(address(output_row) + at, 0, 3);
  }
  const float* gradient(uint32_t output_row) const;

  const Walk& walk_;
  const OnceMap& once_;
  const RowOps& ops_;
  const bool as_it_lies_;  // gradients are used in place, unless an output row has a scale other than 1
  const int64_t gradient_bytes_;
};

}  // namespace tessera_cpu
