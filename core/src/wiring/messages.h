// The messages between ranks before rows travel: a header, its payload, and the policy by which small payloads travel
// with the header. Code that sends, counts or prices messages uses this one description.
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
  int64_t num_bags = 0;  // number of lengths in the payload, over all id routes
  int64_t num_ids = 0;
  int64_t presence_words = 0;  // in the payload
  int64_t largest = 0;         // bytes of the largest payload that this rank has for another one
  int64_t rows = 0;            // elements of rows that the sender expects in the exchange that may be joined
  int64_t largest_rows = 0;    // the largest number of them from one rank
  uint64_t fingerprint = 0;    // of tables, plan, routes and world: differing ranks notice it by this
};
static_assert(sizeof(PeerHeader) == 64);
constexpr int64_t kHeaderBytes = sizeof(PeerHeader);

// Bytes of one id in a payload, of one weight, and of one word. Words are lengths, samples per id route, and bits of
// bags.
constexpr int64_t kIdBytes = 8, kWeightBytes = 4, kWordBytes = 4;

// Number of words that tell which bags of an id route have ids: a count of bags, and a bit for each.
constexpr int64_t presence_words(int64_t bags) { return 1 + (bags + 31) / 32; }
inline double presence_words(double bags) { return 1 + std::ceil(bags / 32); }

// The bytes of a payload: ids, their weights and words, padded to 8 bytes. Counts may be integers, or expected values.
template <class Number>
Number payload_bytes(Number ids, Number weights, Number words) {
  const auto number = [](int64_t n) { return static_cast<Number>(n); };
  const Number bytes = ids * number(kIdBytes) + weights * number(kWeightBytes) + words * number(kWordBytes);
  if constexpr (std::is_integral_v<Number>)
    return (bytes + 7) / 8 * 8;
  else
    return std::ceil(bytes / 8) * 8;
}

// The inline payload's capacity in the next step, if the largest payload of this step was `largest` bytes. It is a
// little larger, because batches differ. It is 0 if it would make all headers of a rank together so large that a second
// exchange costs less.
constexpr int64_t inline_payload_for(int64_t largest, int world_size) {
  constexpr int64_t kUnit = 256, kMost = int64_t{256} << 10;
  const int64_t bytes = (largest + largest / 8 + kUnit - 1) / kUnit * kUnit;
  return bytes <= kMost / (world_size > 1 ? world_size - 1 : 1) ? bytes : 0;
}

// True if an exchange is joined along the rows and columns of a RankGrid. `largest`: the most bytes that one rank has
// for another. Joined data travel twice and are copied twice more, so large exchanges are faster without it.
constexpr bool is_joined(JoinExchanges join, double largest) {
  constexpr double kMost = 8 << 10;
  return join == JoinExchanges::kAlways || (join == JoinExchanges::kAuto && largest <= kMost);
}

}  // namespace tessera
