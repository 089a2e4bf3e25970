// Hashes samples and their order, to compare the data of ranks.
#pragma once

#include <cstdint>

#include "tessera/data.h"

namespace tessera::data {

// Hashes samples in memory completely. For streamed ones it hashes their blocks' places and sizes, and the samples that
// Samples::some() reads.
uint64_t content_hash(const Samples& samples);

}  // namespace tessera::data
