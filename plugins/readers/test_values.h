// Files for tests of readers, the columns that they want, and the values that they get.
#pragma once

#include <string>
#include <vector>

#include "config/test_directory.h"
#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

using tessera::test::TestDirectory;

inline tsr_reader_want want(const char* name, int32_t type, uint32_t flags = 0, char separator = ' ') {
  return {sizeof(tsr_reader_want), flags, name, type, separator, ':', {0, 0}};
}

// The message of the failure that `call` throws.
template <class Call>
std::string failure(const Call& call) {
  try {
    call();
  } catch (const tessera::sdk::Failure& e) {
    return e.what();
  }
  return "no error";
}

template <class T>
std::vector<T> numbers_of(const void* values, size_t n) {
  return {static_cast<const T*>(values), static_cast<const T*>(values) + n};
}
inline std::vector<std::string> texts_of(const tsr_reader_values& v, size_t n) {
  std::vector<std::string> out;
  for (size_t i = 0; i < n; ++i)
    out.emplace_back(static_cast<const char*>(v.values) + v.texts[i], static_cast<size_t>(v.texts[i + 1] - v.texts[i]));
  return out;
}

}  // namespace tessera_readers
