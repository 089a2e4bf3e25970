// Sums of whole files, which take longer than a group's deadline where files are large.
#pragma once

#include <cstdint>

#include "checkpoint/files.h"
#include "tessera/process_group.h"

namespace tessera::checkpoint {

// A file's CRC-32 (zlib's): all ranks share the work and know the sum. Collective.
uint32_t shared_checksum(const ProcessGroup& group, const InputFile& file);

}  // namespace tessera::checkpoint
