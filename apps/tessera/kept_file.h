// Keeps a file that comes through a pipe, because a pipe can be read only once and all ranks of a job must read it.
#pragma once

#include <string>

namespace tessera::cli {

// Reads the pipe (or terminal, or socket) that `path` names and keeps the content in memory, for this process and those
// it starts. Returns a name by which all of them can read it. That is `path` itself if it names a descriptor
// (/dev/stdin, /dev/fd/63) or is not a pipe.
std::string keep_file(const std::string& path);

}  // namespace tessera::cli
