// Reads a text file as a whole.
#pragma once

#include <string>

namespace tessera::cli {

// Errors are "<what><path>: No such file or directory". kNotFound: the file is missing, is a directory, or may not be
// read. kUnavailable: any other error of the system, even in the middle of the file.
std::string read_text(const std::string& path, const std::string& what = "cannot read ");

}  // namespace tessera::cli
