// Which files a path means.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera_readers {

// Folders below a directory that are called KEY=VALUE, as Hive and Spark write parts of a table.
enum class KeyFolders { kRefused, kRead };

// A file; of a directory those whose names end in one of `endings` and begin with neither . nor _; or what a pattern of
// glob(3) matches. Ascending. Failure(TSR_NOT_FOUND): there is none; (TSR_INVALID_ARGUMENT): it is a pipe or
// a device, or a folder below the directory has such files as well, which would be left out.
std::vector<std::string> files_of(std::string_view path, std::span<const std::string_view> endings,
                                  KeyFolders keys = KeyFolders::kRefused);

// The keys of a file's folders below the directory `path`, and their values, which may be missing.
using FolderKeys = std::vector<std::pair<std::string, std::optional<std::string>>>;
FolderKeys folder_keys(std::string_view path, const std::string& file);

}  // namespace tessera_readers
