// Bytes on the wire: those of a step, once its layout is known.
#pragma once

#include "distributed/input_exchange.h"
#include "distributed/routed_batch.h"
#include "distributed/wire_layout.h"
#include "tessera/sharded_modules.h"
#include "wiring/wiring.h"

namespace tessera {

// The bytes that a rank has sent, and those that it will.
struct Sent {
  const RoutedBatch& routed;
  const IdMessages& messages;
  const WireLayout& wire;
  const JoinedExchange& joined;
};
void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Sent& sent, StepTraffic& out);

}  // namespace tessera
