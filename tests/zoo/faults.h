// The plugins of the zoo each have many faults, and one at a time: the one that ZOO_FAULT names; without it none.
#pragma once

#include <cstdlib>
#include <string_view>

namespace zoo {
inline bool has(std::string_view fault) {
  static const char* const named = std::getenv("ZOO_FAULT");
  return named != nullptr && fault == named;
}
}  // namespace zoo
