// Recognises the encoding of text files by the bytes of one of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::cli {

// "utf-16", "windows-1252" or "latin-1"; empty for UTF-8, compressed bytes, and if it cannot be told. `path` is a file;
// for a directory or pattern the result is empty, as for files of other kinds than text. Reads the file once, up to its
// first bytes that are not UTF-8.
std::string encoding_of(const std::string& path);

// Signs of the encoding of a file in its fields.
struct FieldBytes {
  int64_t utf8 = 0;         // characters of several bytes in UTF-8
  bool odd = false;         // some bytes are not UTF-8
  bool of_windows = false;  // some of those are no characters of Latin-1
};
void look_at_field(std::string_view field, FieldBytes& out);

// "windows-1252" or "latin-1" if the fields of a file are not UTF-8, else empty. Each file has its name. Throws
// kInvalidArgument if others, or others of the same file, are UTF-8.
std::string encoding_of_fields(const std::vector<std::pair<std::string, FieldBytes>>& files);

}  // namespace tessera::cli
