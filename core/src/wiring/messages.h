// The messages of ranks before rows travel: a header, its payload, and the policy that lets small payloads ride
// in the header's exchange. One description for those who send, count and price it.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tessera/sharding.h"

namespace tessera {

// The header that the first exchange carries to each peer, before the inline payload. Its size is known
// beforehand.
struct PeerHeader {
  static constexpr uint32_t kMagic = 0x54534833;  // "TSH3"
  enum Flags : uint32_t { kFinished = 1, kError = 2, kWeighted = 4 };
  uint32_t magic = kMagic;
  uint32_t flags = 0;
  int64_t num_bags = 0;  // lengths in the payload, of all id routes
  int64_t num_ids = 0;
  int64_t presence_words = 0;  // of the payload
  int64_t largest = 0;         // bytes of the largest payload that this rank has for another one
  int64_t rows = 0;            // elements of rows that the sender expects in the exchange that may be joined
  int64_t largest_rows = 0;    // the most that it expects from one rank
  uint64_t fingerprint = 0;    // of tables, plan, routes, world: ranks that disagree find out here
};
static_assert(sizeof(PeerHeader) == 64);
constexpr int64_t kHeaderBytes = sizeof(PeerHeader);

// Bytes of one id in a payload, and of one of its words: lengths, samples per id route, bits of bags.
constexpr int64_t kIdBytes = 8, kWeightBytes = 4, kWordBytes = 4;

// Words that tell which bags of an id route have ids: how many bags, and a bit for each.
constexpr int64_t presence_words(int64_t bags) { return 1 + (bags + 31) / 32; }
inline double presence_words(double bags) { return 1 + std::ceil(bags / 32); }

// A payload: ids, their weights, words; padded to 8 bytes. Counts are whole, or expected.
template <class Number>
Number payload_bytes(Number ids, Number weights, Number words) {
  const auto number = [](int64_t n) { return static_cast<Number>(n); };
  const Number bytes = ids * number(kIdBytes) + weights * number(kWeightBytes) + words * number(kWordBytes);
  if constexpr (std::is_integral_v<Number>)
    return (bytes + 7) / 8 * 8;
  else
    return std::ceil(bytes / 8) * 8;
}

// Bytes behind each header in the next step, when the largest payload of this one was `largest`: a little more than was
// needed, because batches differ. 0 where all headers of a rank together would carry so many bytes of it that a second
// exchange costs less.
constexpr int64_t inline_payload_for(int64_t largest, int world_size) {
  constexpr int64_t kUnit = 256, kMost = int64_t{256} << 10;
  const int64_t bytes = (largest + largest / 8 + kUnit - 1) / kUnit * kUnit;
  return bytes <= kMost / (world_size > 1 ? world_size - 1 : 1) ? bytes : 0;
}

// True if an exchange is joined along the rows and columns of a RankGrid, when the most that two ranks have for each
// other is `largest` bytes. Joined data travel twice, and are copied twice more: from some size on that takes longer
// than the messages that are saved.
constexpr bool is_joined(JoinExchanges join, double largest) {
  constexpr double kMost = 8 << 10;
  return join == JoinExchanges::kAlways || (join == JoinExchanges::kAuto && largest <= kMost);
}

}  // namespace tessera
