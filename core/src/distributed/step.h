// What one batch needs between route and the end of its backward: the values that its stages hand on, and their
// scratch. Buffers only grow, so that a step allocates nothing once the largest batch was seen; steps are pooled by
// ShardedCollection.
//
// Two sides, seen from this rank: as *home* it has a batch and sends its ids away; as *owner* it holds shards and
// answers everybody. Both sides skip empty bags: only bags with ids at an owner have a row there and on the wire.
#pragma once

#include <memory>
#include <vector>

#include "distributed/buffer.h"
#include "distributed/device_step.h"
#include "distributed/input_exchange.h"
#include "distributed/received_batch.h"
#include "distributed/route.h"
#include "distributed/routed_batch.h"
#include "distributed/row_moves.h"
#include "distributed/shard_groups.h"
#include "distributed/wire_layout.h"

namespace tessera {

struct Step {
  RouteScratch route;
  RoutedBatch routed;
  IdMessages messages;
  ReceivedBatch received;
  WireLayout wire;
  Buffer rows{DType::kFloat32};  // on the wire: see WireLayout
  OwnerCalls calls;
  RowMoves host_sums;                  // between lanes and sums, both on the wire
  RowMoves output;                     // between the wire and the output
  std::unique_ptr<DeviceStep> device;  // null: all in host memory
};

// The owner's batch as the kernel takes it.
LookupView owner_batch(const Step& step);

}  // namespace tessera
