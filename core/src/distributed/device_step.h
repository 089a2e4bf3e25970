// A step whose shards live on a device: the owner's batch there, and how rows move between the wire and the output.
#pragma once

#include "distributed/row_moves.h"
#include "distributed/step.h"
#include "wiring/wiring.h"

namespace tessera {

struct SlotLayout;
struct CheckedBatch;

// Places the step's buffers: rows on the device, what is copied there in pinned memory. Once, before its first use.
void place_on_device(Step& step, const DeviceStreamPtr& stream);

// After lay_out_rows(): copies the owner's ids there, and the lists that combine and split need. Enqueues only.
// `slot_rows`: of each slot in the output; `layout`: where they go.
void upload_step(const RankWiring& own, const std::vector<int64_t>& slot_rows, const SlotLayout& layout, Step& step);

// The output's gradient there, laid out as it was. Enqueues only.
Tensor gradient_on_device(const Tensor& grad, Step& step);

}  // namespace tessera
