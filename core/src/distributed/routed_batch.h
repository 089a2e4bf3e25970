// The home's batch, dealt out to the streams: what it sends to whom, and what it keeps to put rows in their places.
// Buffers only grow.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/stream_piece.h"

namespace tessera {

// One rank's part of the payload.
struct PayloadPart {
  int64_t begin = 0, ids = 0, bags = 0;
  int64_t presence_words = 0;
};

struct RoutedBatch {
  bool weighted = false;
  std::vector<StreamPiece> sent;       // by stream; behind them what is kept (Wiring::kept)
  std::vector<int32_t> lengths;        // by stream, then sample
  std::vector<int64_t> lengths_begin;  // of each stream in `lengths`
  std::vector<int32_t> bag_order;      // as `lengths`: a stream's bags with ids, ascending
  std::vector<int32_t> positions;      // sequences: by stream, where each id stood in its slot
  std::vector<int64_t> positions_begin;
  std::vector<float> mean_scale;    // by slot and sample: 1 / bag length, for MEAN slots
  std::vector<int64_t> mean_begin;  // of each slot in `mean_scale`; -1: no MEAN
  Buffer payload{DType::kUInt8};    // see route()
  Buffer kept_ids{DType::kInt64};   // of what is kept, one piece behind the other: local rows of the copies
  Buffer kept_weights{DType::kFloat32};
  int64_t num_kept_ids = 0;
  std::vector<PayloadPart> parts;      // by rank
  std::vector<int64_t> payload_bytes;  // by rank
};

}  // namespace tessera
