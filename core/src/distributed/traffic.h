// Bytes on the wire: those of a step, once its layout is known.
#pragma once

#include "distributed/lanes.h"
#include "distributed/step.h"
#include "tessera/sharded_modules.h"

namespace tessera {

// Fills `out`; after lay_out_rows.
void count_traffic(const LaneMap& map, const ProcessGroup& group, const Step& step, StepTraffic& out);

}  // namespace tessera
