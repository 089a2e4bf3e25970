// Reads a text file as a whole, so that half a file is never parsed as a complete one.
#pragma once

#include <string>

namespace tessera::config {

// Errors are "<what><path>: No such file or directory<advice>". kNotFound: the file is missing, is a directory, or may
// not be read. kUnavailable: any other error of the system, even in the middle of the file.
std::string read_file(const std::string& path, const std::string& what = "cannot read ",
                      const std::string& advice = "");

}  // namespace tessera::config
