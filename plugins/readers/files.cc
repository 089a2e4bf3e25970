#include "files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "tessera/sdk/error.h"

namespace tessera_readers {
namespace {

namespace fs = std::filesystem;
using tessera::sdk::fail;

bool is_table(std::string_view name) {
  for (const std::string_view packed : {".gz", ".zst"}) {
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  }
  return !name.starts_with('.') && (name.ends_with(".csv") || name.ends_with(".tsv") || name.ends_with(".txt"));
}

std::vector<std::string> matches(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> out;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::erase_if(out, [](const std::string& file) {
    std::error_code ignored;
    return fs::is_directory(file, ignored);
  });
  return out;
}

}  // namespace

std::vector<std::string> files_of(std::string_view path) {
  const std::string name(path);
  std::error_code ignored;
  std::vector<std::string> out;
  if (fs::is_directory(name, ignored)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(name, ignored)) {
      if (is_table(entry.path().filename().native()) && entry.is_regular_file(ignored)) out.push_back(entry.path());
    }
    if (out.empty()) {
      fail(TSR_NOT_FOUND, "directory ", name,
           " has no files named .csv, .tsv or .txt, with .gz or .zst behind it or not: give a pattern for others");
    }
  } else if (fs::exists(name, ignored)) {
    out.push_back(name);
  } else {
    out = matches(name);
    if (out.empty()) fail(TSR_NOT_FOUND, "there is no file ", name, ", and none that it matches as a pattern");
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tessera_readers
