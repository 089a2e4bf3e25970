// A hash of what samples are and in which order they lie, to compare the data of ranks.
#pragma once

#include <cstdint>

#include "tessera/data.h"

namespace tessera::data {

// Samples in memory are hashed whole. The hash of streamed ones is that of their blocks' places and sizes, and of the
// samples that Samples::some() reads.
uint64_t content_hash(const Samples& samples);

}  // namespace tessera::data
