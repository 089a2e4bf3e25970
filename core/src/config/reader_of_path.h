// Chooses the reader of a job that has data.path but no data.reader.
#pragma once

#include <string>

namespace tessera::config {

// The ending of a name in lower case, without its dot and without a compression suffix: "csv" of "clicks.CSV.gz";
// empty: none. A pattern ends as its files do.
std::string ending_of(const std::string& path);

// The reader of a file, of a directory's files, or of a pattern, by the ending of their names. For text it uses the
// delimiter in the first line. kInvalidArgument: the names do not tell.
std::string reader_of_path(const std::string& path);

}  // namespace tessera::config
