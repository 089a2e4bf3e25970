// The name of the reader that a job means that has data.path and no data.reader.
#pragma once

#include <string>

namespace tessera::config {

// The ending of the name without its dot, in small letters, compressed or not: "csv" of "clicks.CSV.gz"; empty: it has
// none. A pattern of files ends as its files do.
std::string ending_of(const std::string& path);

// The reader of a file, a directory's files or a pattern of files: the one that is called as their names end, of text
// with the delimiter that the first line has. kInvalidArgument: the names do not say it.
std::string reader_of_path(const std::string& path);

}  // namespace tessera::config
