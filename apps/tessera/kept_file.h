// A file that comes through a pipe can be read once, and the ranks of a job read it, too.
#pragma once

#include <string>

namespace tessera::cli {

// Reads what comes through the pipe (or from the terminal, a socket) that `path` names, and keeps it in memory for this
// process and those that it starts. Returns the name by which all of them can read it: `path` itself where that is a
// descriptor's (/dev/stdin, /dev/fd/63) or no pipe.
std::string keep_file(const std::string& path);

}  // namespace tessera::cli
