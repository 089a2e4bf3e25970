#include "files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "tessera/sdk/error.h"

namespace tessera_readers {
namespace {

namespace fs = std::filesystem;
using tessera::sdk::fail;

bool is_table(std::string_view name, std::span<const std::string_view> endings) {
  return !name.starts_with('.') && !name.starts_with('_') &&
         std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return name.ends_with(end); });
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

// A file is read several times, by every rank.
void check_file(const std::string& file) {
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::is_fifo(status) || fs::is_socket(status))
    fail(TSR_INVALID_ARGUMENT, file,
         " is a pipe, which can be read once only: write its rows to a file, and name that (tessera predict --data - "
         "reads its standard input)");
  if (fs::is_character_file(status) || fs::is_block_file(status))
    fail(TSR_INVALID_ARGUMENT, file, " is a device, and not a file of rows");
}

}  // namespace

std::vector<std::string> files_of(std::string_view path, std::span<const std::string_view> endings) {
  const std::string name(path);
  std::error_code ignored;
  std::vector<std::string> out;
  if (fs::is_directory(name, ignored)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(name, ignored)) {
      if (is_table(entry.path().filename().native(), endings) && entry.is_regular_file(ignored))
        out.push_back(entry.path());
    }
    if (out.empty()) {
      std::string all;
      for (const std::string_view end : endings) (all += all.empty() ? "" : ", ") += end;
      fail(TSR_NOT_FOUND, "directory ", name, " has no files whose names end in one of ", all,
           ": give a pattern for others");
    }
  } else if (fs::exists(name, ignored)) {
    out.push_back(name);
  } else {
    out = matches(name);
    if (out.empty()) fail(TSR_NOT_FOUND, "there is no file ", name, ", and none that it matches as a pattern");
  }
  for (const std::string& file : out) check_file(file);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace tessera_readers
