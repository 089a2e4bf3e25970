// Conversions between float32 and IEEE half or bfloat16, under this namespace's name.
#pragma once

#include "tessera/sdk/half.h"

namespace tessera_cpu {

using tessera::sdk::bfloat16_to_float;
using tessera::sdk::float_to_bfloat16;
using tessera::sdk::float_to_half;
using tessera::sdk::half_to_float;

}  // namespace tessera_cpu
