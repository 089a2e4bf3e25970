// Finds the files that a path means.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/sdk/draft/reader_paths.h"

namespace tessera_readers {

using tessera::sdk::is_url;

// Subfolders named KEY=VALUE, as Hive and Spark write partitions of a table.
enum class KeyFolders { kRefused, kRead };

// The files of a path, ascending. It is a file, or a directory (its files whose names end in one of `endings` and begin
// with neither . nor _), or a pattern of glob(3). Throws Failure(TSR_NOT_FOUND) if there is none. Throws
// Failure(TSR_INVALID_ARGUMENT) for a pipe or a device, or if a subfolder also has such files, which would be left out.
std::vector<std::string> files_of(std::string_view path, std::span<const std::string_view> endings,
                                  KeyFolders keys = KeyFolders::kRefused);

// The path, if its name has one of `endings` in any case; or the first file of the directory and its folders whose name
// has one. Empty: neither. Only names are looked at.
std::string first_match(const std::string& path, std::span<const std::string_view> endings);

// The keys of a file's folders below the directory `path`, and their values, which may be missing.
using FolderKeys = std::vector<std::pair<std::string, std::optional<std::string>>>;
FolderKeys folder_keys(std::string_view path, const std::string& file);

}  // namespace tessera_readers
