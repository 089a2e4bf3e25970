// For tests: a text in which one place is replaced.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tessera::test {

// Returns `text` with the first `from` replaced by `to`; the test fails if `from` is not in it.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  if (at == std::string::npos) {
    ADD_FAILURE() << from << " is not in " << text;
    return text;
  }
  return text.replace(at, from.size(), to);
}

}  // namespace tessera::test
