// Route: each id goes to the shard that owns it. Fills the home side of a Step and its payload.
#pragma once

#include "distributed/checked_batch.h"
#include "distributed/step.h"
#include "wiring/wiring.h"

namespace tessera {

// The payload of rank r holds, for r's streams in order: ids (int64), then weights
// (float32, if the collection is weighted), then samples per stream (int32), then lengths (int32); padded to 8 bytes.
// The rank that sums rows of its host for this one (same local index, another host) also learns which bags have ids
// there: after the lengths, for each of Wiring::summed_streams, its bags (int32) and a bit for each, in words of 32.
void route(const RankWiring& own, const CheckedBatch& batch, Step& step);

}  // namespace tessera
