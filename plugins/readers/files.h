// Which files a path means.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera_readers {

// A file; of a directory those whose names end in one of `endings` and begin with neither . nor _; or what a pattern of
// glob(3) matches. Ascending. Failure(TSR_NOT_FOUND) where there is none,
// Failure(TSR_INVALID_ARGUMENT) for a pipe or a device.
std::vector<std::string> files_of(std::string_view path, std::span<const std::string_view> endings);

}  // namespace tessera_readers
