#include "plugin/search_path.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "tessera/error.h"

namespace tessera::plugin {
namespace fs = std::filesystem;
namespace {

void add(const std::string& path, SearchPath* out) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  SearchPath::Directory directory{error ? path : real.string(), ""};
  if (error) {
    directory.problem = "does not exist";
  } else if (!fs::is_directory(real, error)) {
    directory.problem = "is not a directory";
  } else if (::access(real.c_str(), R_OK | X_OK) != 0) {
    directory.problem = "cannot be read";
  }
  const auto same = [&](const SearchPath::Directory& d) { return d.path == directory.path; };
  if (std::none_of(out->directories.begin(), out->directories.end(), same)) {
    out->directories.push_back(std::move(directory));
  }
}

}  // namespace

std::string own_file() {
  Dl_info info{};
  link_map* map = nullptr;
  const bool found = ::dladdr1(reinterpret_cast<const void*>(&default_plugin_directory), &info,
                               reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) != 0;
  std::error_code error;
  // The program's name is empty in this list. argv[0] does not help, because it may be relative to an earlier working
  // directory.
  const bool library = found && map != nullptr && map->l_name[0] != '\0';
  const fs::path file = library ? fs::canonical(map->l_name, error) : fs::read_symlink("/proc/self/exe", error);
  return error ? "" : file.string();
}

std::string default_plugin_directory() {
  const fs::path folder = fs::path(own_file()).parent_path();
  const fs::path beside_library = folder / "tessera" / "plugins-1";
  const fs::path beside_program = folder.parent_path() / "lib" / "tessera" / "plugins-1";
  std::error_code error;
  return fs::is_directory(beside_library, error) ? beside_library : beside_program;
}

SearchPath search_path(const SearchOptions& options) {
  SearchPath out;
  for (const std::string& path : options.configured) {
    if (!path.starts_with('/'))
      fail(Code::kInvalidArgument, "the plugin directory \"", path, "\" is not an absolute path");
    add(path, &out);
  }
  if (!options.default_path) return out;
  std::string_view rest = options.variable;
  while (!rest.empty()) {
    const std::string entry(rest.substr(0, rest.find(':')));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    if (entry.empty()) continue;
    if (entry.starts_with('/')) {
      add(entry, &out);
    } else {
      fail(Code::kInvalidArgument, "TESSERA_PLUGIN_PATH has \"", entry,
           "\", but takes only absolute directories: write \"$PWD/", entry, '"');
    }
  }
  const std::string own = default_plugin_directory();
  add(own, &out);
  std::error_code error;
  const fs::path real = fs::canonical(own, error);
  for (SearchPath::Directory& d : out.directories) d.installed = !error && d.path == real.string();
  return out;
}

std::vector<std::string> plugin_files(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".so") names.push_back(it->path().string());
  }
  std::sort(names.begin(), names.end());
  for (std::string& name : names) {
    const fs::path real = fs::canonical(name, error);
    if (!error) name = real.string();
  }
  return names;
}

}  // namespace tessera::plugin
