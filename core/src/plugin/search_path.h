// The folders in which plugins are looked for.
#pragma once

#include <string>
#include <vector>

namespace tessera::plugin {

// Directories in the order they are searched, each once.
struct SearchPath {
  struct Directory {
    std::string path;     // as given; canonical where it exists
    std::string problem;  // why it is skipped; empty when it is searched
  };
  std::vector<Directory> directories;
};

struct SearchOptions {
  std::vector<std::string> configured;  // absolute, otherwise kInvalidArgument
  std::string variable;                 // TESSERA_PLUGIN_PATH: entries that are not absolute are skipped with a reason
  bool default_path = true;             // plugins-1 beside the library or program
};

SearchPath search_path(const SearchOptions& options);

// The file that this code was loaded from, a library or the program; "" where the system does not tell.
std::string own_file();

// The plugins-1 folder that belongs to this library: lib/tessera/plugins-1 in the tree that it lies in, both installed
// and in a build folder.
std::string default_plugin_directory();

// Canonical paths of the files of `directory` that end in .so, by name. Does not descend.
std::vector<std::string> plugin_files(const std::string& directory);

}  // namespace tessera::plugin
