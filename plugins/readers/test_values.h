// Files for tests of readers, the columns that they want, and the values that they get.
#pragma once

#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tessera/sdk/draft/reader.h"

namespace tessera_readers {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-readers-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
    return path_ + "/" + name;
  }

 private:
  std::string path_;
};

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
