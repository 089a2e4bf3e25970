// Bytes on the wire: those of a step, once its layout is known.
#pragma once

#include "distributed/step.h"
#include "tessera/sharded_modules.h"
#include "wiring/wiring.h"

namespace tessera {

// Fills `out`; after lay_out_rows.
void count_traffic(const Wiring& wiring, const ProcessGroup& group, const Step& step, StepTraffic& out);

}  // namespace tessera
