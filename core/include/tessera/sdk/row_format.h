// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/row_format.h - storage formats of rows in tables that only infer, and their conversion to and from
// floats.
//
//   kInt8, kInt4, kInt2   [scale: half][bias: half][codes], value = scale * code + bias; the first element of a byte of
//                         codes is in its low bits
//   kFloat32, kFloat16    the values
//   kFloat8               1 sign, 4 exponent (bias 7) and 3 mantissa bits; no infinities, no NaN
//
// Everything is little-endian. Rows of a table are `stride` bytes apart, at least row_bytes(); bytes between are 0.
// These are the layouts of FBGEMM's inference tables and the bytes of its quantizers
// (tests/conformance/QUANTIZATION.md, sections 1 and 2). All functions give the same bytes on every processor: where
// bytes are made, no addition follows a multiplication, so compilers cannot contract them. [any-thread]
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "tessera/abi/row_formats.h"
#include "tessera/abi/tensor.h"
#include "tessera/sdk/half.h"

namespace tessera::sdk {
inline namespace v1 {

static_assert(std::endian::native == std::endian::little, "rows are stored little-endian");

// The numbers are those of FBGEMM's SparseType. Files and plugins may rely on them.
enum class RowFormat : uint32_t { kFloat32 = 0, kFloat16 = 1, kInt8 = 2, kInt4 = 3, kInt2 = 4, kFloat8 = 6 };

struct RowFormatInfo {
  RowFormat format;
  const char* name;
  DLDataType dtype;     // for tsr_kernel_config::weight_dtype
  int bits;             // per value
  int64_t header;       // bytes of scale and bias
  int64_t dim_multiple; /* of columns that are quantized together */
  const char* layout;   // for tsr_kernel_config::row_format; nullptr: plain values of `dtype`
};
inline constexpr std::array<RowFormatInfo, 6> kRowFormats{{
    {RowFormat::kFloat32, "fp32", {kDLFloat, 32, 1}, 32, 0, 1, nullptr},
    {RowFormat::kFloat16, "fp16", {kDLFloat, 16, 1}, 16, 0, 1, nullptr},
    {RowFormat::kInt8, "int8", {kDLUInt, 8, 1}, 8, 4, 2, TSR_ROW_FORMAT_INT8},
    {RowFormat::kInt4, "int4", {kDLUInt, 4, 1}, 4, 4, 4, TSR_ROW_FORMAT_INT4},
    {RowFormat::kInt2, "int2", {kDLUInt, 2, 1}, 2, 4, 8, TSR_ROW_FORMAT_INT2},
    {RowFormat::kFloat8, "fp8", {kDLFloat, 8, 1}, 8, 0, 1, TSR_ROW_FORMAT_FP8},
}};
inline const RowFormatInfo& info_of(RowFormat format) {
  return *std::find_if(kRowFormats.begin(), kRowFormats.end() - 1,
                       [&](const RowFormatInfo& i) { return i.format == format; });
}
// Returns nullptr if it is none of the formats.
inline const RowFormatInfo* row_format_named(std::string_view name) {
  const auto at = std::find_if(kRowFormats.begin(), kRowFormats.end(), [&](const auto& i) { return i.name == name; });
  return at == kRowFormats.end() ? nullptr : &*at;
}
// Returns the format of a config, from its weight_dtype and row_format.
inline const RowFormatInfo* row_format_of(DLDataType dtype, const char* layout) {
  const std::string_view wanted = layout == nullptr ? "" : layout;
  const auto at = std::find_if(kRowFormats.begin(), kRowFormats.end(), [&](const auto& i) {
    return i.dtype.code == dtype.code && i.dtype.bits == dtype.bits && i.dtype.lanes == dtype.lanes &&
           wanted == (i.layout == nullptr ? "" : i.layout);
  });
  return at == kRowFormats.end() ? nullptr : &*at;
}
inline const char* to_string(RowFormat format) { return info_of(format).name; }

// Returns the bytes of a row of `dim` values, or the bytes from row to row with an alignment.
inline int64_t row_bytes(RowFormat format, int64_t dim, int64_t alignment = 1) {
  const RowFormatInfo& info = info_of(format);
  const int64_t bytes = info.header + (dim * info.bits + 7) / 8;
  return (bytes + alignment - 1) / alignment * alignment;
}

// Returns the index of the first value that is NaN or infinite; -1: none.
inline int64_t first_non_finite(const float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if ((std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u) return i;
  }
  return -1;
}

namespace detail {

struct Range {
  float least, most;
};
// If there are zeros of both signs, the first one counts.
inline Range range_of(const float* x, int64_t n) {
  Range r{n > 0 ? x[0] : 0, n > 0 ? x[0] : 0};
  for (int64_t i = 1; i < n; ++i) {
    r.least = x[i] < r.least ? x[i] : r.least;
    r.most = x[i] > r.most ? x[i] : r.most;
  }
  return r;
}

// Rounds to nearest, ties to even, for 0 <= v <= levels: 2^23 leaves no bits below the point. NaN counts as 0.
inline uint32_t code_of(float v, float levels) {
  const float clamped = v > 0 ? (v < levels ? v : levels) : 0;
  return std::bit_cast<uint32_t>(clamped + 0x1p23f) & 0xffu;
}

// See QUANTIZATION.md, 1.1.
inline void encode_codes(const float* x, int64_t n, int bits, uint8_t* out) {
  const Range r = range_of(x, n);
  const auto levels = static_cast<float>((1 << bits) - 1);
  const uint16_t bias16 = float_to_half(r.least);
  const float bias = half_to_float(bias16);
  const float range = r.most - bias;
  float scale = half_to_float(float_to_half(range == 0 ? 1.0f : range / levels));
  if (scale == 0) scale = 1;
  const float inverse = 1.0f / scale;
  const uint16_t scale16 = float_to_half(scale);
  std::memcpy(out, &scale16, 2);
  std::memcpy(out + 2, &bias16, 2);
  uint8_t* const codes = out + 4;
  const int per_byte = 8 / bits;
  for (int64_t i = 0; i < n; i += per_byte) {
    uint32_t byte = 0;
    for (int k = 0; k < per_byte && i + k < n; ++k) byte |= code_of((x[i + k] - bias) * inverse, levels) << (bits * k);
    codes[i / per_byte] = static_cast<uint8_t>(byte);
  }
}

inline void decode_codes(const uint8_t* row, int64_t n, int bits, float* out) {
  uint16_t scale16, bias16;
  std::memcpy(&scale16, row, 2);
  std::memcpy(&bias16, row + 2, 2);
  const double scale = half_to_float(scale16), bias = half_to_float(bias16);
  const int per_byte = 8 / bits, mask = (1 << bits) - 1;
  for (int64_t i = 0; i < n; ++i) {
    const int code = row[4 + i / per_byte] >> (bits * (i % per_byte)) & mask;
    out[i] = static_cast<float>(scale * code + bias);  // exact in double, so it is rounded once
  }
}

}  // namespace detail

// An 8-bit float with `exponent_bits` exponent bits: QUANTIZATION.md, 1.5. Larger values become the largest one.
struct Float8 {
  int exponent_bits = 4;
  int bias = 7;

  int mantissa_bits() const { return 7 - exponent_bits; }
  float largest() const {
    return std::ldexp(2.0f - std::ldexp(1.0f, -mantissa_bits()), (1 << exponent_bits) - 2 - bias);
  }
  uint8_t encode(float x) const {
    const int m = mantissa_bits();
    const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << 7;
    const float a = std::min(std::fabs(x), largest());
    if (a < std::ldexp(1.0f, 1 - bias)) {
      return static_cast<uint8_t>(sign | static_cast<uint32_t>(std::lrint(std::ldexp(a, bias - 1 + m))));
    }
    const uint32_t u = std::bit_cast<uint32_t>(a);
    const uint32_t rounded = u + (1u << (22 - m)) - 1 + (u >> (23 - m) & 1u);
    return static_cast<uint8_t>(sign | ((rounded >> (23 - m)) - (static_cast<uint32_t>(127 - bias) << m)));
  }
  float decode(uint8_t code) const {
    const int m = mantissa_bits(), field = (code & 0x7f) >> m;
    const float mantissa = std::ldexp(static_cast<float>(code & ((1 << m) - 1)), -m);
    const float value = field == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1.0f + mantissa, field - bias);
    return (code & 0x80) != 0 ? -value : value;
  }
};

// Index of the first value that is more than half a step beyond the format's largest number, to which encode_row clips
// it; -1: none. Only kFloat8 clips.
inline int64_t first_clipped(RowFormat format, const float* values, int64_t count) {
  if (format != RowFormat::kFloat8) return -1;
  const float largest = Float8{}.largest(), step = largest / 15;  // between the largest numbers: 16 for 240
  for (int64_t i = 0; i < count; ++i) {
    if (std::abs(values[i]) > largest + step / 2) return i;
  }
  return -1;
}

// Converts one row of `dim` finite values to row_bytes(format, dim) bytes, and back. encode_row needs a multiple of
// dim_multiple. A slice of a row's codes after a copy of its scale and bias is also a row.
inline void encode_row(RowFormat format, const float* values, int64_t dim, void* row) {
  auto* out = static_cast<uint8_t*>(row);
  switch (format) {
    case RowFormat::kFloat32:
      std::memcpy(out, values, static_cast<size_t>(dim) * 4);
      return;
    case RowFormat::kFloat16:
      for (int64_t i = 0; i < dim; ++i) {
        const uint16_t half = float_to_half(values[i]);
        std::memcpy(out + 2 * i, &half, 2);
      }
      return;
    case RowFormat::kFloat8:
      for (int64_t i = 0; i < dim; ++i) out[i] = Float8{}.encode(values[i]);
      return;
    default:
      detail::encode_codes(values, dim, info_of(format).bits, out);
  }
}
inline void decode_row(RowFormat format, const void* row, int64_t dim, float* values) {
  const auto* in = static_cast<const uint8_t*>(row);
  switch (format) {
    case RowFormat::kFloat32:
      std::memcpy(values, in, static_cast<size_t>(dim) * 4);
      return;
    case RowFormat::kFloat16:
      for (int64_t i = 0; i < dim; ++i) {
        uint16_t half;
        std::memcpy(&half, in + 2 * i, 2);
        values[i] = half_to_float(half);
      }
      return;
    case RowFormat::kFloat8:
      for (int64_t i = 0; i < dim; ++i) values[i] = Float8{}.decode(in[i]);
      return;
    default:
      detail::decode_codes(in, dim, info_of(format).bits, values);
  }
}

// The INT8 format of checkpoints and communication: [codes][scale: float32][bias: float32], `dim + 8` bytes, any dim.
// See QUANTIZATION.md, 1.2.
inline void encode_row_sbfloat(const float* x, int64_t dim, void* row) {
  auto* out = static_cast<uint8_t*>(row);
  const detail::Range r = detail::range_of(x, dim);
  const float range = r.most - r.least;
  const float scale = range / 255.0f, inverse = 255.0f / (range + 1e-8f);
  for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<uint8_t>(detail::code_of((x[i] - r.least) * inverse, 255.0f));
  std::memcpy(out + dim, &scale, 4);
  std::memcpy(out + dim + 4, &r.least, 4);
}
inline void decode_row_sbfloat(const void* row, int64_t dim, float* values) {
  const auto* in = static_cast<const uint8_t*>(row);
  float scale, bias;
  std::memcpy(&scale, in + dim, 4);
  std::memcpy(&bias, in + dim + 4, 4);
  for (int64_t i = 0; i < dim; ++i) values[i] = std::fma(scale, static_cast<float>(in[i]), bias);
}
// Converts such a row to a kInt8 row: the same codes, with scale and bias rounded to half. See QUANTIZATION.md, 1.3.
inline void int8_from_sbfloat(const void* from, int64_t dim, void* row) {
  const auto* in = static_cast<const uint8_t*>(from);
  auto* out = static_cast<uint8_t*>(row);
  for (int64_t k = 0; k < 2; ++k) {
    float wide;
    std::memcpy(&wide, in + dim + 4 * k, 4);
    const uint16_t half = float_to_half(wide);
    std::memcpy(out + 2 * k, &half, 2);
  }
  std::memcpy(out + 4, in, static_cast<size_t>(dim));
}

}  // namespace v1
}  // namespace tessera::sdk
