// What one batch needs between route and the end of its backward. Buffers only grow, so that a step allocates nothing
// once the largest batch was seen; steps are pooled by ShardedCollection.
//
// Two sides, seen from this rank: as *home* it has a batch and sends its ids away; as *owner* it holds shards and
// answers everybody. Both sides skip empty bags: only bags with ids at an owner have a row there and on the wire.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/inverse_moves.h"
#include "distributed/row_moves.h"
#include "modules/lookup_view.h"
#include "tessera/jagged_tensor.h"
#include "tessera/lookup.h"
#include "tessera/tensor.h"
#include "wiring/messages.h"
#include "wiring/wiring.h"

namespace tessera {

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
  int64_t presence_words = 0;
};

// Which bags of a stream have ids: bit b % 32 of word b / 32.
struct Presence {
  int64_t bags = 0;
  int64_t full_bags = 0;
  const uint32_t* bits = nullptr;  // in `payloads`
  bool has(int64_t bag) const { return bits[bag / 32] >> (bag % 32) & 1; }
};

// A lane of a host sum, walked bag by bag.
struct LaneWalk {
  const Presence* presence;
  int64_t at;  // of its next row in `rows`
};

// Rows travel from owners to homes in hops, gradients the same way back. In the hop across hosts counts are by rank, in
// the hop inside the host by local rank. Elements of float32.
struct Hop {
  int64_t owner_begin = 0, home_begin = 0;         // in `rows`
  std::vector<int64_t> owner_counts, home_counts;  // per rank of the hop's group
  int64_t owner_total = 0, home_total = 0;
};

// One shard of a group, looked up and updated by itself: in steps that are sampled.
struct AloneLookup {
  int group = 0;
  int table = 0;  // index in the group
  std::vector<tsr_lookup_feature> features;
  Lookup::Context context;
};

// The ids that replicas look up, on a device: those of their slots, one slot behind the other.
struct ReplicaBatch {
  explicit ReplicaBatch(const DeviceStreamPtr& stream) {
    for (Buffer* buffer : {&host_ids, &host_offsets, &host_weights}) buffer->pinned(stream);
    for (Buffer* buffer : {&ids, &offsets, &weights}) buffer->on_device(stream);
  }
  Buffer host_ids{DType::kInt64}, host_offsets{DType::kInt64}, host_weights{DType::kFloat32};
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  int64_t num_ids = 0, num_bags = 0;
  bool weighted = false;
  std::vector<int64_t> first_offset;  // by slot
};

// Where shards live on a device: copies there of what the owner received, and how rows move. See device_step.h.
struct DeviceStep {
  explicit DeviceStep(const DeviceStreamPtr& s) : stream(s), output(s), host_sums(s), replicas(s), uploaded(s) {
    for (Buffer* buffer : {&ids, &offsets, &weights, &grad}) buffer->on_device(s);
    host_grad.pinned(s);
  }
  DeviceStreamPtr stream;
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  Buffer host_grad{DType::kFloat32}, grad{DType::kFloat32};  // of the output, where the caller has it in host memory
  RowMoves output;                                           // `rows` and the output
  RowMoves host_sums;                                        // `rows`: those of lanes, and sums
  std::unique_ptr<InverseMoves> inverse;                     // once a batch had inverse indices
  ReplicaBatch replicas;
  DeviceStream::Event uploaded;  // behind it the host may write its side again
};

// Where each slot's rows lie in one tensor: row i of slot s begins at element offset[s] + i * stride[s].
struct SlotLayout {
  std::vector<int64_t> offset;
  std::vector<int64_t> stride;
};

struct Step {
  // -- home
  std::vector<int32_t> input_lengths;  // where the input's are int64
  bool weighted = false;
  std::vector<StreamPiece> sent;       // by stream
  std::vector<int32_t> lengths;        // by stream, then sample
  std::vector<int64_t> lengths_begin;  // of each stream in `lengths`
  std::vector<int32_t> bag_order;      // as `lengths`: a stream's bags with ids, ascending
  std::vector<int32_t> ranges;         // by cut that is not whole: the range of each id
  std::vector<int64_t> ranges_begin;   // of each cut in `ranges`
  std::vector<int64_t> local_rows;     // as `ranges`, for routed cuts
  std::vector<int64_t> positions;      // sequences: by stream, where each id stood in its slot
  std::vector<int64_t> positions_begin;
  std::vector<float> mean_scale;           // by slot and sample: 1 / bag length, for MEAN slots
  std::vector<int64_t> mean_begin;         // of each slot in `mean_scale`; -1: no MEAN
  std::vector<PayloadPart> payload_parts;  // by rank
  std::vector<int64_t*> next;              // scratch, by stream or range
  std::vector<float*> next_weight;         // scratch, likewise
  std::vector<int32_t*> counts;            // scratch, by range
  std::vector<uint8_t> written;            // scratch: the bags of a slot that have a row in the output
  std::vector<int32_t> unwritten;          // scratch: the others
  Buffer payload_send{DType::kUInt8};
  std::vector<int64_t> payload_send_bytes;  // by rank

  // -- exchange
  std::vector<PeerHeader> headers;  // by peer
  Buffer header_send{DType::kUInt8}, header_recv{DType::kUInt8};
  std::vector<int64_t> header_counts;
  int64_t room = 0;  // bytes for a payload behind each header
  Buffer payload_recv{DType::kUInt8};
  std::vector<int64_t> payload_recv_bytes;
  bool in_second = false;                // payloads had no room there, and came in a second exchange
  std::vector<const uint8_t*> payloads;  // as they arrived, by peer
  bool all_finished = false;
  // What another rank gets: a header, the room behind it, and its payload where that had none.
  int64_t id_bytes_to(int peer) const { return kHeaderBytes + room + (in_second ? payload_send_bytes[peer] : 0); }

  // -- owner: pieces by (peer, own stream), peer-major
  std::vector<StreamPiece> received;
  int64_t num_ids = 0, num_offsets = 0;
  Buffer ids{DType::kInt64}, offsets{DType::kInt64}, weights{DType::kFloat32};
  Buffer output_rows{DType::kInt32};                      // as offsets, of pieces that stay and have empty bags
  std::vector<int64_t> first_offset;                      // of each received piece in `offsets`
  std::vector<std::vector<tsr_lookup_feature>> features;  // by shard group
  std::vector<Lookup::Context> contexts;                  // by shard group
  std::vector<AloneLookup> alone;                         // instead of both, where the step is sampled

  // -- between two hosts, as the rank that sums rows of its own host for a home elsewhere: by home's host, then
  // Wiring::summed_streams or host_sums of the own host
  std::vector<Presence> presence;
  std::vector<int64_t> relayed_begin;  // by home's host, then lanes of the own host: in `rows`
  std::vector<int64_t> sum_begin;      // in `rows`
  std::vector<LaneWalk> walks;         // scratch

  // -- rows on the wire; see row_layout.h
  Buffer rows{DType::kFloat32};
  Hop in_host, across;
  std::vector<int64_t> owner_begin;         // owner: by peer, then own lanes, in `rows`; -1: they stay
  std::vector<int64_t> lane_begin;          // home: of each lane in `rows`; -1: they stay
  std::vector<int64_t> host_sum_begin;      // home: of each host sum of other hosts in `rows`
  std::vector<int32_t> host_lengths;        // home: ids per bag at all of a host sum's lanes
  std::vector<int32_t> host_bag_order;      // home: as bag_order, of host sums
  std::vector<int64_t> host_full_bags;      // home: bags with ids of each host sum
  std::vector<int64_t> host_lengths_begin;  // home: of each host sum in host_lengths

  std::unique_ptr<DeviceStep> device;  // null: all in host memory
};

// The owner's batch as the kernel takes it.
inline LookupView received_batch(const Step& step) {
  if (const DeviceStep* on = step.device.get()) {
    return {on->ids.tensor().first({step.num_ids}), on->offsets.tensor().first({step.num_offsets}),
            step.weighted ? on->weights.tensor().first({step.num_ids}) : Tensor()};
  }
  return {step.ids.tensor().first({step.num_ids}), step.offsets.tensor().first({step.num_offsets}),
          step.weighted ? step.weights.tensor().first({step.num_ids}) : Tensor(),
          step.output_rows.tensor().first({step.num_offsets})};
}

}  // namespace tessera
