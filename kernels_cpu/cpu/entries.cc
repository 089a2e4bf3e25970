#include "entries.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace tessera_cpu {
namespace {

constexpr int64_t kMaxCompared = 64;          // entries that are sorted by comparing all pairs
constexpr int64_t kComparisonsPerPass = 512;  // comparisons that cost about as much as a pass that counts digits
constexpr int kMaxDigit = 11;                 // 2048 counters of 4 bytes: a quarter of an L1 cache
constexpr int kMaxPasses = 6;
// The fewest places per entry. With 16, a sixteenth of the rows that occur once share a place.
constexpr int64_t kPlacesPerEntry = 16;

// Computes each entry's position as the number of smaller rows plus the number of equal rows before it, so that no
// branch depends on the rows.
template <class Entry>
void sort_by_comparing(const Entry* entries, Entry* sorted, int64_t n, int low) {
  int32_t keys[kMaxCompared];  // signed, because every processor's vectors can compare signed numbers
  for (int64_t i = 0; i < n; ++i) keys[i] = static_cast<int32_t>((entries[i].row >> low) ^ 0x80000000u);
  uint8_t equal[kMaxCompared] = {};  // equal[s]: entries placed so far whose row has s smaller ones
  for (int64_t i = 0; i < n; ++i) {
    const int32_t key = keys[i];
    int32_t smaller = 0;
    for (int64_t k = 0; k < n; ++k) smaller += keys[k] < key ? 1 : 0;
    sorted[smaller + equal[smaller]++] = entries[i];
  }
}

// The widest digit for n entries: clearing and summing 2^digit counters should cost no more than the entries
// themselves.
int widest_digit(int64_t n) {
  if (n < 256) return 6;
  if (n < 1024) return 8;
  if (n < 4096) return 9;
  return kMaxDigit;
}

}  // namespace

int64_t OnceMap::places(int64_t n, int low, int high) {
  const int64_t rows = int64_t{1} << std::max(high - low, 5);
  return std::clamp<int64_t>(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n * kPlacesPerEntry))), 32, rows);
}

OnceMap::OnceMap(char* memory, int64_t n, int low, int high)
    : words_(reinterpret_cast<uint64_t*>(memory)), mask_(static_cast<uint32_t>(places(n, low, high) - 1)), low_(low) {
  std::memset(memory, 0, static_cast<size_t>(bytes(n, low, high)));
}

template <class Entry>
Entry* sort_by_row(Entry* entries, Entry* other, int64_t n, int low, int high) {
  const int bits = high - low;
  if (bits <= 0 || n < 2) return entries;
  const int passes = (bits + widest_digit(n) - 1) / widest_digit(n);
  if (n <= kMaxCompared && n * n <= kComparisonsPerPass * passes) {
    sort_by_comparing(entries, other, n, low);
    return other;
  }
  const int digit = (bits + passes - 1) / passes;
  const uint32_t mask = (1u << digit) - 1;
  uint32_t starts[kMaxPasses][1 << kMaxDigit];
  for (int pass = 0; pass < passes; ++pass) std::memset(starts[pass], 0, sizeof(uint32_t) << digit);
  for (int64_t i = 0; i < n; ++i) {
    for (int pass = 0; pass < passes; ++pass) ++starts[pass][(entries[i].row >> (low + pass * digit)) & mask];
  }
  for (int pass = 0; pass < passes; ++pass) {
    uint32_t sum = 0;
    for (uint32_t k = 0; k <= mask; ++k) sum += std::exchange(starts[pass][k], sum);
    const int shift = low + pass * digit;
    for (int64_t i = 0; i < n; ++i) other[starts[pass][(entries[i].row >> shift) & mask]++] = entries[i];
    std::swap(entries, other);
  }
  return entries;
}

template PlainEntry* sort_by_row(PlainEntry*, PlainEntry*, int64_t, int, int);
template FullEntry* sort_by_row(FullEntry*, FullEntry*, int64_t, int, int);

}  // namespace tessera_cpu
