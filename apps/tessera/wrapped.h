// Breaks texts into lines for a terminal or for comments in a file.
#pragma once

#include <cstddef>
#include <string>

namespace tessera::cli {

constexpr size_t kColumns = 80;

// The words of `text` in lines of at most kColumns, each ended by a line feed. The first line begins with `first` and
// the others with `next`. A word that is longer than a line gets a line of its own.
std::string wrapped(const std::string& text, const std::string& first = "", const std::string& next = "");

// A sentence or a list as it is printed to a file descriptor, with a line feed. A terminal gets it in lines of at most
// kColumns, of which all but the first are indented; if parts of `text` have two spaces between them, they stay whole.
// Anything else gets one line, in which programs can look for words. Several lines stay as they are.
std::string fitted(const std::string& text, int stream);

}  // namespace tessera::cli
