#include "checkpoint/checksum.h"

#include <algorithm>
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
  for (const uint32_t part : values_together(group, "checksum", [&] { return mine.part(file.size()); })) parts ^= part;
  return PieceSum::crc32(parts, file.size());
}

}  // namespace tessera::checkpoint
