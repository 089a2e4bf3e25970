// SPDX-License-Identifier: Apache-2.0 OR MIT
// tessera/sdk/sized.h - a struct of this side, for the other side to read or to fill.
#pragma once

namespace tessera::sdk {
inline namespace v1 {

// A struct with its struct_size. All other members are 0.
template <class T>
T sized() noexcept {
  T out{};
  out.struct_size = sizeof(T);
  return out;
}

}  // namespace v1
}  // namespace tessera::sdk
