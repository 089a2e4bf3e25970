// Files for the tests of this folder.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <string>

#include "config/test_directory.h"
#include "config/test_refusal.h"
#include "tessera/data.h"

namespace tessera::data {

using test::TestDirectory;

inline std::string write_gz(const TestDirectory& directory, const std::string& name, const std::string& text) {
  std::string path = directory.file(name);
  gzFile file = gzopen(path.c_str(), "wb");
  EXPECT_EQ(gzwrite(file, text.data(), static_cast<unsigned>(text.size())), static_cast<int>(text.size()));
  gzclose(file);
  return path;
}

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
