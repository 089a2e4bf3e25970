// Backward's first pass over a table: rows that occur once in the batch are updated in order of position.
//
// Nothing has to be sorted or summed for them, and all ids of a bag find its gradient in the L1 cache. Entries of rows
// that occur again are left over, for sort_by_row and RowOps::walk.
#pragma once

#include <cstdint>

#include "entries.h"
#include "row_block.h"
#include "row_ops.h"

namespace tessera_cpu {

class OncePass {
 public:
  // `walk` says where the gradients of output rows are, and has the block; `once` has all entries of the piece.
  OncePass(const Walk& walk, const OnceMap& once, const RowOps& ops);

  // Writes the entries left over to `again`, which has room for all; returns where they end. Rows may wait in the block
  // afterwards.
  PlainEntry* run(const IdRun& ids, PlainEntry* again) const;
  // The same for entries that exist already; `again` may be where they begin.
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
  const bool as_it_lies_;  // gradients need no change but what their output rows say
  const int64_t gradient_bytes_;
};

}  // namespace tessera_cpu
