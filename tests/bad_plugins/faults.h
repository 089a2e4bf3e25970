// Each plugin of this folder can have many faults, one at a time: the one named by BAD_PLUGINS_FAULT. Without that
// variable it has none.
#pragma once

#include <cstdlib>
#include <string_view>

namespace bad {
inline bool has(std::string_view fault) {
  static const char* const named = std::getenv("BAD_PLUGINS_FAULT");
  return named != nullptr && fault == named;
}
}  // namespace bad
