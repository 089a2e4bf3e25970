// Combine: rows that came back become the collection's output; and, backward, the output's gradient becomes rows.
#pragma once

#include "distributed/checked_batch.h"
#include "distributed/step.h"
#include "wiring/wiring.h"

namespace tessera {

// Where the rows of a slot go: bag b at data + b * stride. Pooled slots have `bags` rows, sequence slots one per id.
struct SlotView {
  float* data = nullptr;
  int64_t stride = 0;
};

// Pooled: of the arrivals of the same columns the first one that has a row for a bag writes it, the others add to it in
// their order; bags without a row become zeros. The rows of one that stays are there already, and count as the first.
// MEAN divides by the bag's whole length.
void combine_pooled(const RankWiring& own, Step& step, const std::vector<SlotBags>& slots,
                    const std::vector<SlotView>& out);
void split_pooled(const RankWiring& own, Step& step, const std::vector<SlotView>& grad);

// Sequences: rows are copied to where their ids stood.
void combine_sequence(const Wiring& wiring, const Step& step, const std::vector<SlotView>& out);
void split_sequence(const Wiring& wiring, Step& step, const std::vector<SlotView>& grad);

}  // namespace tessera
