// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/structs.h - structs of the other side, which may be shorter or longer than this side's (abi/base.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tessera::sdk {
inline namespace v1 {

// Copies a struct at this side's length. Members that the other side does not know are 0.
template <class T>
T read_struct(const T& in) noexcept {
  T out{};
  std::memcpy(&out, &in, std::min<size_t>(in.struct_size, sizeof(T)));
  out.struct_size = sizeof(T);
  return out;
}

// Fills a struct of the other side up to its struct_size, which does not change.
template <class T>
void write_struct(const T& value, T* out) noexcept {
  constexpr size_t kHead = sizeof(out->struct_size);
  const size_t end = std::min<size_t>(out->struct_size, sizeof(T));
  if (end <= kHead) return;
  std::memcpy(reinterpret_cast<char*>(out) + kHead, reinterpret_cast<const char*>(&value) + kHead, end - kHead);
}

}  // namespace v1
}  // namespace tessera::sdk
