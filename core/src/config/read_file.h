// A text file as a whole, for what is parsed afterwards: half of one is never taken for all of it.
#pragma once

#include <string>

namespace tessera::config {

// "<what><path>: No such file or directory<advice>": kNotFound where it is not there, is a directory or may not be
// read, kUnavailable for everything else that the system refuses, in the middle of the file, too.
std::string read_file(const std::string& path, const std::string& what = "cannot read ",
                      const std::string& advice = "");

}  // namespace tessera::config
