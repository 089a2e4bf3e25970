// Recognises the encoding of text files by the bytes of one of them.
#pragma once

#include <string>

namespace tessera::cli {

// "utf-16", "windows-1252" or "latin-1"; empty for UTF-8, compressed bytes, and if it cannot be told. `path` is a file;
// for a directory or pattern the result is empty. Reads the file once, up to its first bytes that are not UTF-8.
std::string encoding_of(const std::string& path);

}  // namespace tessera::cli
