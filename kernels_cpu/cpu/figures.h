// Costs of lookups and updates, used without a calibration: one thread of a 2-core cloud machine (AMD EPYC, AVX-512).
#pragma once

#include "tessera/abi/kernel.h"

namespace tessera_cpu {

const tsr_machine& typical_figures();

}  // namespace tessera_cpu
