// Selects the Highway targets to compile; included before its headers.
#pragma once

// Disables targets that are hardly faster than the next lower one. Also disables SVE, whose vectors have no size at
// compile time and cannot be in arrays; on 64-bit ARM, every processor has NEON.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
