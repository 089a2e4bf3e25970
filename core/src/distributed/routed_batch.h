// The home's batch, divided among the id routes: what the home sends to each rank, and what it remembers to put the
// rows in their places. Buffers only grow.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/id_block.h"

namespace tessera {

// One rank's part of the payload.
struct PayloadPart {
  int64_t begin = 0, ids = 0, bags = 0;
  int64_t presence_words = 0;
};

// The ids of an id route whose distinct ids travel once: see route_once.h.
struct OnceSent {
  int id_route = -1;        // the id route of the same table and rank that has the distinct ids; -1: all ids travel
  int32_t fresh = 0;        // distinct ids that were already known before this id route's ids
  int64_t rows = 0;         // number of ids of this id route
  int64_t index_begin = 0;  // in RoutedBatch::once_index
};

struct RoutedBatch {
  bool weighted = false;
  std::vector<IdBlock> sent;           // by id route, followed by the blocks of Wiring::replicated_rows
  std::vector<OnceSent> once;          // by id route; empty: all ids travel
  std::vector<int32_t> once_index;     // for each id of an id route in `once`: its place among the distinct ids
  int64_t ids = 0, ids_sent = 0;       // ids for other ranks, and how many of them travel
  std::vector<int32_t> lengths;        // by id route, then sample
  std::vector<int64_t> lengths_begin;  // by id route: begin in `lengths`
  std::vector<int32_t> bag_order;      // parallel to `lengths`: for each id route its bags with ids, ascending
  std::vector<int32_t> positions;      // for sequences, by id route: each id's position in its feature
  std::vector<int64_t> positions_begin;
  std::vector<float> mean_scale;         // by table feature and sample: 1 / bag length, for MEAN table features
  std::vector<int64_t> mean_begin;       // by table feature: begin in `mean_scale`; -1: not MEAN
  Buffer payload{DType::kUInt8};         // see route()
  Buffer replicated_ids{DType::kInt64};  // one id block after the other: rows of the replicated shard
  Buffer replicated_weights{DType::kFloat32};
  int64_t num_replicated_ids = 0;
  std::vector<PayloadPart> parts;      // by rank
  std::vector<int64_t> payload_bytes;  // by rank
  std::vector<int64_t> rows_wanted;    // by rank: see rows_wanted() in wire_layout.h; empty: rows are not joined
};

}  // namespace tessera
