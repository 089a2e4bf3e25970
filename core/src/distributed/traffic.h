// Counts the bytes that a step sends, once its layout is known.
#pragma once

#include "distributed/input_exchange.h"
#include "distributed/routed_batch.h"
#include "distributed/wire_layout.h"
#include "tessera/sharded_modules.h"
#include "wiring/wiring.h"

namespace tessera {

// The bytes that a rank has sent, or will send.
struct Sent {
  const RoutedBatch& routed;
  const IdMessages& messages;
  const WireLayout& wire;
  const JoinedExchange& joined;
};
std::vector<StepExchange> exchanges_of(const HostGrid& hosts, int rank, const Sent& sent);  // of one step, in order
void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Sent& sent, StepTraffic& out);

}  // namespace tessera
