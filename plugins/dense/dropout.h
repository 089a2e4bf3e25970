// Values that training drops: an element is set to 0 with some probability, and otherwise divided by one minus it.
#pragma once

#include "loops.h"
#include "tessera/sdk/module.h"

namespace tessera_dense {

// Reads the option `name`, a probability; throws Failure unless it is at least 0 and below 1.
double read_rate(tessera::sdk::Options& options, const char* name, double otherwise);

// Drops n values with probability `rate`; `from` and `to` may be equal. Whether value i is dropped is a function of the
// call's seed and step, of `stream`, which tells a layer's draws apart, and of first + i alone. So backward drops what
// forward has dropped, and nothing is kept between them.
void drop_values(const tessera::sdk::ModuleCall& call, uint64_t stream, int64_t first, int64_t n, double rate,
                 const float* from, float* to);

}  // namespace tessera_dense
