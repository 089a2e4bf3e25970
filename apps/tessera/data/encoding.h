// The encoding of files of text, recognised by the bytes of one of them.
#pragma once

#include <string>

namespace tessera::cli {

// "utf-16", "windows-1252" or "latin-1"; empty: UTF-8, compressed bytes, or what cannot be told. `path` is a file, or a
// directory or pattern, of which nothing is told. Reads the file once until its first bytes that are not UTF-8.
std::string encoding_of(const std::string& path);

}  // namespace tessera::cli
