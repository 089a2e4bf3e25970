// Which of Highway's targets are compiled; included before its headers.
#pragma once

// Between two others, and hardly faster than the lower one; and SVE, whose vectors have no size before the program runs
// and so cannot lie in arrays: on 64-bit ARM, NEON is what every processor has.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
