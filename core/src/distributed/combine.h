// Combine: rows that came back become the collection's output; and, backward, the output's gradient becomes rows.
#pragma once

#include "distributed/checked_batch.h"
#include "distributed/output_layout.h"
#include "distributed/routed_batch.h"
#include "distributed/wire_layout.h"
#include "wiring/wiring.h"

namespace tessera {

// Rows, or their gradients, as the home has them.
struct HomeRows {
  const RoutedBatch& routed;
  const WireLayout& wire;
  float* data;
};

struct CombineScratch {
  std::vector<uint8_t> written;    // the bags of a slot that have a row in the output
  std::vector<int32_t> unwritten;  // the others
};

// Pooled: of the arrivals of the same columns the first one that has a row for a bag writes it, the others add to it in
// their order; bags without a row become zeros. The rows of one that stays are there already, and count as the first.
// MEAN divides by the bag's whole length.
void combine_pooled(const RankWiring& own, const HomeRows& rows, const std::vector<SlotBags>& slots,
                    const std::vector<SlotView>& out, CombineScratch& scratch);
void split_pooled(const RankWiring& own, const std::vector<SlotView>& grad, const HomeRows& rows);

// Sequences: rows are copied to where their ids stood.
void combine_sequence(const Wiring& wiring, const HomeRows& rows, const std::vector<SlotView>& out);
void split_sequence(const Wiring& wiring, const std::vector<SlotView>& grad, const HomeRows& rows);

}  // namespace tessera
