// Route: each id goes to the shard that owns it.
#pragma once

#include <span>

#include "distributed/checked_batch.h"
#include "distributed/route_once.h"
#include "distributed/routed_batch.h"
#include "distributed/workers.h"
#include "wiring/wiring.h"

namespace tessera {

struct RouteOptions {
  bool weighted = false;
  Workers workers = {};  // each takes some of the row splits
  // A flag for each table: an id that a batch repeats travels once. Empty: all ids travel.
  std::span<const uint8_t> once = {};
};

struct RouteScratch {
  std::vector<int32_t> input_lengths;  // a copy if the input's lengths are int64
  std::vector<int32_t> ranges;         // the range of each id, for row splits that have several
  std::vector<int64_t> ranges_begin;   // by row split: begin of its entries in `ranges`
  std::vector<int64_t> rows_in_shard;  // parallel to `ranges`, for routed splits: the row in the shard
  std::vector<int64_t> routed_ids;     // ids of a routed split, if the input's ids are int32
  // A cursor for each id route, then one for each range of each row split. This has each row split's first cursor, and
  // the end.
  std::vector<size_t> cursors_begin;
  std::vector<int64_t*> next;  // by cursor, as the next three
  std::vector<float*> next_weight;
  std::vector<int32_t*> next_position, counts;
  OnceScratch once;
};

// The payload of rank r holds, for r's id routes in order: ids (int64), then weights
// (float32, if the collection is weighted), then samples per id route (int32), then lengths (int32); padded to 8 bytes.
// The rank that sums rows of its host for this one (same local index, another host) also learns which bags have ids
// there: after the lengths, for each of Wiring::summed_routes, its bags (int32) and a bit for each, in words of 32.
// If ids travel once (route_once.h), an id route has these: as one bag for sequences, otherwise as bags of one id.
void route(const RankWiring& own, const CheckedBatch& batch, const RouteOptions& options, RouteScratch& scratch,
           RoutedBatch& out);

}  // namespace tessera
