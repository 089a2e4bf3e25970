// The state of one batch between route and the end of its backward: the values that the stages pass on, and their
// scratch memory. Buffers only grow, so a step allocates nothing after the largest batch. ShardedCollection reuses
// steps.
//
// A rank has two roles. As *home* it has a batch and sends its ids away; as *owner* it holds shards and answers all
// homes. Both skip empty bags: only bags with ids at an owner have a row there and on the wire.
#pragma once

#include <memory>

#include "distributed/buffer.h"
#include "distributed/data_parallel_input.h"
#include "distributed/input_exchange.h"
#include "distributed/output_moves.h"
#include "distributed/received_batch.h"
#include "distributed/replicated_input.h"
#include "distributed/route.h"
#include "distributed/routed_batch.h"
#include "distributed/row_executor.h"
#include "distributed/shard_groups.h"
#include "distributed/wire_layout.h"

namespace tessera {

struct Step {
  // `stream`: of the shards' device; null: they are in host memory.
  Step(const RankWiring& own, const DeviceStreamPtr& stream, Workers workers)
      : executor(row_executor(stream, workers)),
        host_sums(executor->mover()),
        output(executor->mover()),
        inverse(executor->mover(true)),
        data_parallel(data_parallel_input(stream)),
        replicated(stream) {
    for (Buffer* buffer : {&routed.replicated_ids, &routed.replicated_weights}) buffer->pinned(stream);
    output->moves = output_moves(own);
    for (Buffer* buffer : {&received.ids, &received.offsets, &received.weights}) buffer->pinned(stream);
    for (Buffer* buffer : {&rows, &owned.ids, &owned.offsets, &owned.weights}) buffer->on_device(stream);
  }

  RouteScratch route;
  RoutedBatch routed;
  IdMessages messages;
  ReceivedBatch received;
  WireLayout wire;
  Buffer rows{DType::kFloat32};            // rows on the wire: see WireLayout
  JoinedExchange joined{DType::kFloat32};  // exchange of rows and gradients, if they are joined
  OwnerCalls calls;
  OwnerBatch owned;
  std::unique_ptr<RowExecutor> executor;
  std::unique_ptr<RowMover> host_sums;  // moves between row routes and sums, both in `rows`
  std::unique_ptr<RowMover> output;     // moves between `rows` and the output
  std::unique_ptr<RowMover> inverse;    // moves between the output and its distinct rows: see list_inverse()
  std::unique_ptr<DataParallelInput> data_parallel;
  ReplicatedInput replicated;
};

}  // namespace tessera
