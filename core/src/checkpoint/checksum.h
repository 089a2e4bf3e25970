// Sums of whole files, which take longer than a group's deadline where files are large.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/files.h"
#include "tessera/process_group.h"

namespace tessera::checkpoint {

struct FileSum {
  int64_t bytes = 0;
  uint32_t crc = 0;
  bool operator==(const FileSum&) const = default;
};

// All ranks share the work and know the sum. Collective.
FileSum shared_checksum(const ProcessGroup& group, const InputFile& file);
// Rank 0 alone reads the file, and alone learns the sum; `path` means nothing elsewhere. Collective.
FileSum checksum_by_rank_0(const ProcessGroup& group, const std::string& path);

}  // namespace tessera::checkpoint
