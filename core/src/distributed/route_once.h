// Ids that a batch repeats travel once. After a home has routed its ids, each rank that owns rows of a table gets the
// distinct ids of all the table's features in one id route, in the order of their first place; the other features' id
// routes are empty. So the owner looks up each row once and sends it once, and knows nothing of this. The home puts a
// row in all its places, and sends the sum of their gradients, in the order of the places.
//
// This is done where the owner does not sum rows: for sequences, and for pooled features if no bag has two ids there.
// It depends only on the batch, so a job that is resumed has the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/routed_batch.h"
#include "distributed/workers.h"
#include "wiring/wiring.h"

namespace tessera {

// The id routes of one table to one rank, whose ids are the same rows.
struct OnceGroup {
  std::vector<int> id_routes;  // ascending; those that take part in this batch
  int64_t ids = 0, distinct = 0;
  int64_t slots_begin = 0, slots = 0, distinct_begin = 0;  // in OnceScratch
};

struct OnceScratch {
  std::vector<int> first_route;  // by id route: the id route of the table's first feature with the same rows
  std::vector<OnceGroup> groups;
  std::vector<int32_t> slots;
  std::vector<int64_t> distinct;
  std::vector<const int64_t*> ids;  // by id route: the routed ids, and later the ids that travel
  Buffer payload{DType::kUInt8};
};

// Finds the id routes where sending once saves enough, and sets `once`, `once_index` and `sent` of `out`. `scratch.ids`
// must have the routed ids; afterwards it has the ids that travel. Returns false if it saves too little everywhere:
// then all ids travel.
bool find_once(const RankWiring& own, std::span<const uint8_t> tables, const Workers& workers, OnceScratch& scratch,
               RoutedBatch& out);

}  // namespace tessera
