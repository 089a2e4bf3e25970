#include "files.h"

#include <glob.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>

#include "tessera/sdk/error.h"
#include "tessera/sdk/nearest.h"

namespace tessera_readers {
namespace {

namespace fs = std::filesystem;
using tessera::sdk::fail;

bool is_hidden(std::string_view name) { return name.starts_with('.') || name.starts_with('_'); }

// True if the name ends in one of these, in capitals or not.
bool ends_in(std::string name, std::span<const std::string_view> endings) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

bool is_table(std::string_view name, std::span<const std::string_view> endings) {
  return !is_hidden(name) && ends_in(std::string(name), endings);
}

bool is_key(std::string_view name) { return name.find('=') != name.npos && !name.starts_with('='); }

// Calls body(entry) for all entries of a folder that are not hidden.
template <class Body>
void for_entries(const fs::path& folder, const Body& body) {
  std::error_code error;
  fs::directory_iterator at(folder, error);
  while (!error && at != fs::directory_iterator()) {
    if (!is_hidden(at->path().filename().native())) body(*at);
    at.increment(error);
  }
  if (error) fail(TSR_UNAVAILABLE, "cannot list the directory ", folder.native(), ": ", error.message());
}

// Collects the tables of a folder and of its key folders into `out`.
struct Collected {
  static constexpr int kDeepest = 16;  // bound on depth, because folders that are links may form circles

  std::span<const std::string_view> endings;
  KeyFolders keys;
  std::vector<std::string>& out;

  bool has_tables(const fs::path& folder, int depth) const {
    bool found = false;
    for_entries(folder, [&](const fs::directory_entry& entry) {
      std::error_code ignored;
      found = found || (is_table(entry.path().filename().native(), endings) && entry.is_regular_file(ignored)) ||
              (entry.is_directory(ignored) && depth < kDeepest && has_tables(entry.path(), depth + 1));
    });
    return found;
  }
  void add(const fs::path& folder, int depth) const {
    for_entries(folder, [&](const fs::directory_entry& entry) {
      std::error_code ignored;
      const fs::path& path = entry.path();
      if (entry.is_directory(ignored)) {
        if (keys == KeyFolders::kRead && is_key(path.filename().native()) && depth < kDeepest)
          add(path, depth + 1);
        else if (has_tables(path, depth))
          fail(TSR_INVALID_ARGUMENT, "directory ", folder.native(), " has the folder ", path.filename().native(),
               ", whose files would be left out: move it away, or give a pattern of files, such as ",
               (path.parent_path() / "*" / ("*" + std::string(endings.front()))).native());
      } else if (is_table(path.filename().native(), endings) && entry.is_regular_file(ignored)) {
        out.push_back(path);
      }
    });
  }
};

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

// Every rank reads a file several times, so it must be a regular file.
void check_file(const std::string& file) {
  std::error_code ignored;
  const fs::file_status status = fs::status(file, ignored);
  if (fs::is_fifo(status) || fs::is_socket(status))
    fail(TSR_INVALID_ARGUMENT, file,
         " is a pipe, which can be read only once: write its rows to a file, and name the file (tessera predict "
         "--data - reads its standard input)");
  if (fs::is_character_file(status) || fs::is_block_file(status))
    fail(TSR_INVALID_ARGUMENT, file, " is a device, and not a file of rows");
}

// Decodes folder names as Hive writes them: %20 is a blank.
std::string without_percents(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    const bool two =
        text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    out += two ? static_cast<char>(byte) : text[i];
    i += two ? 2 : 0;
  }
  return out;
}

}  // namespace

std::vector<std::string> files_of(std::string_view path, std::span<const std::string_view> endings, KeyFolders keys) {
  const std::string name(path);
  std::error_code ignored;
  std::vector<std::string> out;
  if (fs::is_directory(name, ignored)) {
    Collected{endings, keys, out}.add(name, 0);
    if (out.empty())
      fail(TSR_NOT_FOUND, "directory ", name, " has no files whose names end in one of ", tessera::sdk::joined(endings),
           ": give a pattern for others");
  } else if (fs::exists(name, ignored)) {
    out.push_back(name);
  } else {
    out = matches(name);
    if (out.empty() && is_url(name))
      fail(TSR_INVALID_ARGUMENT, name,
           " is a URL, which the readers parquet and arrow take: name one of them, or bring ",
           "the files here by `tessera copy URL FOLDER`");
    if (out.empty()) fail(TSR_NOT_FOUND, "there is no file ", name, ", and none that it matches as a pattern");
  }
  for (const std::string& file : out) check_file(file);
  std::sort(out.begin(), out.end());
  return out;
}

std::string first_match(const std::string& path, std::span<const std::string_view> endings) {
  std::error_code failed;
  if (!fs::is_directory(path, failed)) {
    return ends_in(is_url(path) ? path.substr(0, path.find('?')) : path, endings) ? path : "";
  }
  constexpr int kMostFiles = 10000;
  std::string first;
  int seen = 0;
  for (fs::recursive_directory_iterator at(path, failed), end; !failed && at != end && seen < kMostFiles;
       at.increment(failed), ++seen) {
    std::error_code ignored;
    const std::string& file = at->path().native();
    if (is_table(at->path().filename().native(), endings) && at->is_regular_file(ignored) &&
        (first.empty() || file < first))
      first = file;
  }
  return first;
}

FolderKeys folder_keys(std::string_view path, const std::string& file) {
  FolderKeys out;
  std::error_code ignored;
  if (is_url(path))
    path = path.substr(0, path.find('?'));  // options of the store
  else if (!fs::is_directory(path, ignored))
    return out;
  for (const fs::path& part : fs::path(file).lexically_relative(path).parent_path()) {
    const std::string& name = part.native();
    if (!is_key(name)) continue;
    const size_t equals = name.find('=');
    std::optional<std::string> value = without_percents(std::string_view(name).substr(equals + 1));
    if (value == "__HIVE_DEFAULT_PARTITION__") value.reset();
    out.emplace_back(without_percents(std::string_view(name).substr(0, equals)), std::move(value));
  }
  return out;
}

}  // namespace tessera_readers
