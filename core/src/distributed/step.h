// What one batch needs between route and the end of its backward. Buffers only grow, so that a step allocates nothing
// once the largest batch was seen; steps are pooled by ShardedCollection.
//
// Two sides, seen from this rank: as *home* it has a batch and sends its ids away; as *owner* it holds shards and
// answers everybody. Both sides skip empty bags: only bags with ids at an owner have a row there and on the wire.
#pragma once

#include <cstdint>
#include <vector>

#include "distributed/lanes.h"
#include "modules/lookup_view.h"
#include "tessera/jagged_tensor.h"
#include "tessera/lookup.h"
#include "tessera/tensor.h"

namespace tessera {

// A 1-D buffer that only grows.
class Buffer {
 public:
  explicit Buffer(DType dtype) : dtype_(dtype) {}
  // At least n elements; contents are lost when it grows.
  const Tensor& ensure(int64_t n) {
    if (!tensor_.defined() || tensor_.numel() < n) tensor_ = Tensor::empty({std::max<int64_t>(n + n / 4, 64)}, dtype_);
    return tensor_;
  }
  const Tensor& tensor() const { return tensor_; }
  template <class T>
  T* data() const {
    return tensor_.data<T>();
  }

 private:
  DType dtype_;
  Tensor tensor_;
};

// What the first exchange carries to each peer. Fixed size, so that it needs no sizes beforehand.
struct PeerHeader {
  static constexpr uint32_t kMagic = 0x54534831;  // "TSH1"
  enum Flags : uint32_t { kFinished = 1, kError = 2, kWeighted = 4 };
  uint32_t magic = kMagic;
  uint32_t flags = 0;
  int64_t num_bags = 0;  // lengths in the payload, all streams together
  int64_t num_ids = 0;
  uint64_t fingerprint = 0;  // of tables, plan and world: ranks that disagree find out here
};
static_assert(sizeof(PeerHeader) == 32);

// One piece of a stream: what one home sent to one owner.
struct StreamPiece {
  int64_t bags = 0;       // samples, empty bags included
  int64_t full_bags = 0;  // bags that have ids here
  int64_t ids = 0;
  int64_t first_bag = 0;  // of its lengths among those of the peer
  int64_t first_id = 0;   // home: in the peer's payload; owner: in Step::ids
};

// Home: one rank's part of payload_send.
struct PayloadPart {
  int64_t begin = 0, ids = 0, bags = 0;
};

struct Step {
  // -- home
  std::vector<int32_t> input_lengths;  // where the input's are int64
  bool weighted = false;
  std::vector<StreamPiece> sent;       // by stream
  std::vector<int32_t> lengths;        // by stream, then sample
  std::vector<int64_t> lengths_begin;  // of each stream in `lengths`
  std::vector<int32_t> ranges;         // by cut that is not whole: the range of each id
  std::vector<int64_t> ranges_begin;   // of each cut in `ranges`
  std::vector<int64_t> local_rows;     // as `ranges`, for routed cuts
  std::vector<int64_t> positions;      // sequences: by stream, where each id stood in its slot
  std::vector<int64_t> positions_begin;
  std::vector<float> mean_scale;           // by slot and sample: 1 / bag length, for MEAN slots
  std::vector<int64_t> mean_begin;         // of each slot in `mean_scale`; -1: no MEAN
  std::vector<PayloadPart> payload_parts;  // by rank
  std::vector<int64_t> next;               // scratch, by stream
  Buffer payload_send{DType::kUInt8};
  std::vector<int64_t> payload_send_bytes;  // by rank

  // -- exchange
  Buffer header_send{DType::kUInt8}, header_recv{DType::kUInt8};
  std::vector<int64_t> header_counts;
  Buffer payload_recv{DType::kUInt8};
  std::vector<int64_t> payload_recv_bytes;
  bool all_finished = false;

  // -- owner: pieces by (peer, own stream), peer-major
  std::vector<StreamPiece> received;
  int64_t num_ids = 0, num_offsets = 0;
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  std::vector<int64_t> first_offset;                      // of each received piece in `offsets`
  std::vector<std::vector<tsr_lookup_feature>> features;  // by shard group
  std::vector<Lookup::Context> contexts;                  // by shard group

  // -- rows on the wire. Owner layout: by peer, then own lanes. Home layout: by rank, then that rank's lanes.
  Buffer owner_rows{DType::kFloat32}, home_rows{DType::kFloat32};
  std::vector<int64_t> owner_counts, home_counts;  // elements by rank
  std::vector<int64_t> lane_begin;                 // home: where each lane's rows begin in home_rows
};

// The owner's batch as the kernel takes it.
inline LookupView received_batch(const Step& step) {
  return {step.ids.tensor().first({step.num_ids}), step.offsets.tensor().first({step.num_offsets}),
          step.weighted ? step.weights.tensor().first({step.num_ids}) : Tensor()};
}

}  // namespace tessera
