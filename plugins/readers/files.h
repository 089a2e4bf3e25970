// Which files a path means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera_readers {

// A file; of a directory those whose names end in .csv, .tsv or .txt, with .gz or .zst behind it or not; or what a
// pattern of glob(3) matches. Ascending. Failure(TSR_NOT_FOUND) where there is none.
std::vector<std::string> files_of(std::string_view path);

}  // namespace tessera_readers
