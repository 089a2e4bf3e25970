// The plugins of this folder each have many faults, and one at a time: the one that BAD_PLUGINS_FAULT names; without it
// none.
#pragma once

#include <cstdlib>
#include <string_view>

namespace bad {
inline bool has(std::string_view fault) {
  static const char* const named = std::getenv("BAD_PLUGINS_FAULT");
  return named != nullptr && fault == named;
}
}  // namespace bad
