// The folders in which plugins are searched.
#pragma once

#include <string>
#include <vector>

namespace tessera::plugin {

// The directories in the order in which they are searched, each once.
struct SearchPath {
  struct Directory {
    std::string path;        // canonical if it exists, otherwise as given
    std::string problem;     // the reason why it is skipped; empty: it is searched
    bool installed = false;  // it is default_plugin_directory()
  };
  std::vector<Directory> directories;
};

struct SearchOptions {
  std::vector<std::string> configured;  // absolute paths; others are kInvalidArgument
  std::string variable;                 // TESSERA_PLUGIN_PATH; entries that are not absolute are kInvalidArgument
  bool default_path = true;             // also search plugins-1 next to the library or program
};

SearchPath search_path(const SearchOptions& options);

// The file that this code was loaded from: a library or the program. "" if the system does not know.
std::string own_file();

// The plugins-1 folder that belongs to this library: lib/tessera/plugins-1 in the tree of the library. This holds for
// an installed tree and for a build folder.
std::string default_plugin_directory();

// Canonical paths of the files in `directory` that end in .so, sorted by name. It does not search subfolders.
std::vector<std::string> plugin_files(const std::string& directory);

}  // namespace tessera::plugin
