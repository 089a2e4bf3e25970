// Files for the tests of this folder: a directory that is removed with the test.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "config/test_refusal.h"
#include "tessera/data.h"

namespace tessera::data {

class TestDirectory {
 public:
  TestDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-data-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TestDirectory() { std::filesystem::remove_all(path_); }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
    return path_ + "/" + name;
  }
  std::string write_gz(const std::string& name, const std::string& text) const {
    std::string path = path_ + "/" + name;
    gzFile file = gzopen(path.c_str(), "wb");
    EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
    gzclose(file);
    return path;
  }

 private:
  std::string path_;
};

// Returns the error of reading, or of the check of ids after it.
inline std::string reading_error(const DataConfig& config) {
  return test::refusal([&] { read_dataset(config, 1).require_known_ids(); });
}

// Path of a data set that is too big for the repository, in its data folder or beside it; "": not available.
inline std::string real_data(const std::string& name) {
  for (const char* place : {"/data/", "/../shared/data/"}) {
    std::string path = std::string(TESSERA_SOURCE_DIR) + place + name;
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

}  // namespace tessera::data
