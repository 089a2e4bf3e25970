// Breaks texts into lines for a terminal or for comments in a file.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::cli {

constexpr size_t kColumns = 80;

// The words of `text` in lines of at most kColumns, each ended by a line feed. The first line begins with `first` and
// the others with `next`. A word that is longer than a line gets a line of its own.
std::string wrapped(const std::string& text, const std::string& first = "", const std::string& next = "");

}  // namespace tessera::cli
