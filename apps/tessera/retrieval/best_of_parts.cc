#include "retrieval/best_of_parts.h"

#include <vector>

#include "tessera/error.h"

namespace tessera::retrieval {

FoundByPart FoundByPart::in(std::span<std::byte> bytes, int64_t batch, int64_t k) {
  const auto count = static_cast<size_t>(batch * k);
  TESSERA_CHECK(bytes.size() == count * (sizeof(float) + sizeof(int32_t)), "bytes of what was found");
  auto* const at = bytes.data();
  return {{reinterpret_cast<float*>(at), count}, {reinterpret_cast<int32_t*>(at + count * sizeof(float)), count}};
}

void best_of_parts(std::span<const FoundByPart> parts, int64_t k, std::span<float> scores, std::span<float> items) {
  const auto best = static_cast<size_t>(k);
  std::vector<size_t> next(parts.size());
  for (size_t first = 0; first < scores.size(); first += best) {
    next.assign(parts.size(), first);
    for (size_t i = first; i < first + best; ++i) {
      size_t from = parts.size();
      // Among equal items the first part's wins, because its items have the lower numbers.
      for (size_t p = 0; p < parts.size(); ++p) {
        if (next[p] == first + best || parts[p].items[next[p]] < 0) continue;
        if (from == parts.size() || parts[p].scores[next[p]] > parts[from].scores[next[from]]) from = p;
      }
      TESSERA_CHECK(from < parts.size(), "k items in all parts");
      scores[i] = parts[from].scores[next[from]];
      items[i] = static_cast<float>(parts[from].items[next[from]]);
      ++next[from];
    }
  }
}

}  // namespace tessera::retrieval
