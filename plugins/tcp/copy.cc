#include "copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tessera::tcp {

#ifdef __SSE2__

void copy_past_cache(char* to, const char* from, size_t bytes) {
  constexpr size_t kLine = 64;  // only whole cache lines are streamed; a partial line would have to be read first
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  const size_t end = head + (bytes - head) / kLine * kLine;
  for (size_t at = head; at < end; at += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // orders these stores like the stores of any other copy
  std::memcpy(to + end, from + end, bytes - end);
}

#else

void copy_past_cache(char* to, const char* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace tessera::tcp
