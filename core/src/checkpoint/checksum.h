// Checksums of whole files. For large files they take longer than a group's deadline.
#pragma once

#include <cstdint>

#include "checkpoint/files.h"
#include "tessera/process_group.h"

namespace tessera::checkpoint {

// Returns a file's CRC-32 (zlib's). All ranks share the work and get the result. Collective.
uint32_t shared_checksum(const ProcessGroup& group, const InputFile& file);

}  // namespace tessera::checkpoint
