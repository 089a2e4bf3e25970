#include "checkpoint/checksum.h"

#include <zlib.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "checkpoint/together.h"

namespace tessera::checkpoint {
namespace {

constexpr int64_t kChunk = int64_t{16} << 20;

// Sums of chunks, put together in their order.
FileSum combined(const std::map<int64_t, uint32_t>& chunks, int64_t bytes) {
  uLong crc = 0;
  for (const auto& [chunk, sum] : chunks)
    crc = ::crc32_combine(crc, sum, static_cast<z_off_t>(std::min(kChunk, bytes - chunk * kChunk)));
  return {bytes, static_cast<uint32_t>(crc)};
}

// Chunks first, first + every, ... of a file: one a call, until there are no more.
bool sum_next(const InputFile& file, int64_t first, int64_t every, std::map<int64_t, uint32_t>& sums) {
  const int64_t chunk = sums.empty() ? first : sums.rbegin()->first + every;
  if (chunk * kChunk >= file.size()) return false;
  sums[chunk] = file.crc32(chunk * kChunk, std::min(kChunk, file.size() - chunk * kChunk));
  return true;
}

}  // namespace

FileSum shared_checksum(const ProcessGroup& group, const InputFile& file) {
  std::map<int64_t, uint32_t> sums;
  together_in_turns(group, "checksum", [&] { return sum_next(file, group.rank(), group.world_size(), sums); });
  const auto texts = together(group, "checksum", [&] {
    std::ostringstream mine;
    for (const auto& [chunk, sum] : sums) mine << chunk << ' ' << sum << ' ';
    return mine.str();
  });
  for (const std::string& text : texts) {
    std::istringstream in(text);
    int64_t chunk = 0;
    for (uint32_t sum = 0; in >> chunk >> sum;) sums[chunk] = sum;
  }
  return combined(sums, file.size());
}

FileSum checksum_by_rank_0(const ProcessGroup& group, const std::string& path) {
  std::optional<InputFile> file;
  std::map<int64_t, uint32_t> sums;
  together_in_turns(group, "checksum", [&] {
    if (group.rank() != 0) return false;
    if (!file) file.emplace(path);
    return sum_next(*file, 0, 1, sums);
  });
  return file ? combined(sums, file->size()) : FileSum{};
}

}  // namespace tessera::checkpoint
