// The formats in which float32 values travel: unchanged, as float16 or bfloat16, or as int8 with a scale per row.
//
// An int8 row is its scale (float32, largest magnitude / 127) and a byte per element, the nearest multiple of the
// scale. Rows of one element would become larger, so they travel unchanged. Elements that are not rows, or rows of
// different widths, are divided into rows of 64; the last row may be shorter.
#pragma once

#include <tessera/sdk/error.h>
#include <tessera/sdk/half.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

namespace extras {

enum class Format { kExact, kHalf, kBfloat16, kInt8 };

inline Format format_named(const std::string& name, const char* option) {
  if (name == "none") return Format::kExact;
  if (name == "fp16") return Format::kHalf;
  if (name == "bf16") return Format::kBfloat16;
  if (name == "int8") return Format::kInt8;
  tessera::sdk::fail(TSR_INVALID_ARGUMENT, "option \"", option, "\" is \"", name,
                     "\" but must be none, fp16, bf16 or int8");
}

// Blocks of rows with one width, in one format.
class Encoding {
 public:
  // `row_elements` is as in tsr_collective_call.
  Encoding(Format format, int64_t row_elements) : format_(format), row_(row_elements > 0 ? row_elements : 64) {
    if (format_ == Format::kInt8 && row_ < 2) format_ = Format::kExact;
  }
  bool is_exact() const { return format_ == Format::kExact; }

  int64_t bytes(int64_t elements) const {
    switch (format_) {
      case Format::kExact:
        return 4 * elements;
      case Format::kHalf:
      case Format::kBfloat16:
        return 2 * elements;
      case Format::kInt8:
        break;
    }
    return elements + 4 * ((elements + row_ - 1) / row_);
  }

  // Writes bytes(n) bytes. NaN and infinity are kept; values beyond float16's range become its largest number.
  void encode(const float* from, int64_t n, uint8_t* to) const {
    switch (format_) {
      case Format::kExact:
        if (n > 0) std::memcpy(to, from, static_cast<size_t>(4 * n));
        return;
      case Format::kHalf:
        return encode_16(from, n, to, half_within_range);
      case Format::kBfloat16:
        return encode_16(from, n, to, tessera::sdk::float_to_bfloat16);
      case Format::kInt8:
        break;
    }
    for (int64_t at = 0; at < n; at += row_) to = encode_row(from + at, std::min(row_, n - at), to);
  }

  void decode(const uint8_t* from, int64_t n, float* to) const {
    switch (format_) {
      case Format::kExact:
        if (n > 0) std::memcpy(to, from, static_cast<size_t>(4 * n));
        return;
      case Format::kHalf:
        return decode_16(from, n, to, tessera::sdk::half_to_float);
      case Format::kBfloat16:
        return decode_16(from, n, to, tessera::sdk::bfloat16_to_float);
      case Format::kInt8:
        break;
    }
    for (int64_t at = 0; at < n; at += row_) from = decode_row(from, std::min(row_, n - at), to + at);
  }

 private:
  static uint16_t half_within_range(float value) {
    const uint16_t half = tessera::sdk::float_to_half(value);
    const bool overflows = (half & 0x7fff) == 0x7c00 && (std::bit_cast<uint32_t>(value) & 0x7fffffff) != 0x7f800000;
    return static_cast<uint16_t>(half - overflows);  // 65504 is one below infinity
  }

  template <class Convert>
  static void encode_16(const float* from, int64_t n, uint8_t* to, const Convert& convert) {
    for (int64_t i = 0; i < n; ++i) {
      const uint16_t value = convert(from[i]);
      std::memcpy(to + 2 * i, &value, 2);
    }
  }
  template <class Convert>
  static void decode_16(const uint8_t* from, int64_t n, float* to, const Convert& convert) {
    for (int64_t i = 0; i < n; ++i) {
      uint16_t value;
      std::memcpy(&value, from + 2 * i, 2);
      to[i] = convert(value);
    }
  }

  static uint8_t* encode_row(const float* from, int64_t n, uint8_t* to) {
    uint32_t largest = 0;  // bits of the largest magnitude; NaN and infinity compare above all other values
    for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(from[i]) & 0x7fffffff);
    // A row with NaN or infinity gets a scale that is not finite; a row of tiny values becomes 0.
    const bool is_finite = largest < 0x7f800000, is_zero = largest < 0x04000000;  // 2^-119
    const float magnitude = std::bit_cast<float>(is_finite ? largest : 0x7fc00000);
    const float scale = is_zero ? 0 : magnitude / 127, inverse = is_zero || !is_finite ? 0 : 127 / magnitude;
    std::memcpy(to, &scale, 4);
    to += 4;
    constexpr float kRounds = 12582912;  // 1.5 * 2^23: the sum's last bit is 1
    constexpr int32_t kRoundsBits = std::bit_cast<int32_t>(kRounds);
    for (int64_t i = 0; i < n; ++i)
      to[i] = static_cast<uint8_t>(std::bit_cast<int32_t>(from[i] * inverse + kRounds) - kRoundsBits);
    return to + n;
  }
  static const uint8_t* decode_row(const uint8_t* from, int64_t n, float* to) {
    float scale;
    std::memcpy(&scale, from, 4);
    from += 4;
    for (int64_t i = 0; i < n; ++i) to[i] = scale * static_cast<float>(static_cast<int8_t>(from[i]));
    return from + n;
  }

  Format format_;
  int64_t row_;
};

}  // namespace extras
