// Formats texts as printf does.
#pragma once

#include <cstdio>
#include <string>

namespace tessera::cli {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, format, values...)), '\0');
  std::snprintf(out.data(), out.size() + 1, format, values...);
  return out;
}

}  // namespace tessera::cli
