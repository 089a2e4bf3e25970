#include "checkpoint/checksum.h"

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/together.h"

namespace tessera::checkpoint {

uint32_t shared_checksum(const ProcessGroup& group, const InputFile& file) {
  constexpr int64_t kChunk = int64_t{16} << 20;
  PieceSum mine;
  std::vector<char> piece;
  int64_t at = group.rank() * kChunk;
  together_in_turns(group, "checksum", [&] {
    if (at >= file.size()) return false;
    piece.resize(static_cast<size_t>(std::min(kChunk, file.size() - at)));
    file.read_at(at, piece.data(), std::ssize(piece));
    mine.add(at, piece.data(), std::ssize(piece));
    at += group.world_size() * kChunk;
    return true;
  });
  uint32_t parts = 0;
  for (const std::string& part : together(group, "checksum", [&] { return std::to_string(mine.part(file.size())); }))
    parts ^= static_cast<uint32_t>(std::stoul(part));
  return PieceSum::crc32(parts, file.size());
}

}  // namespace tessera::checkpoint
