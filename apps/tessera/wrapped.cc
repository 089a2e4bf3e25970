#include "wrapped.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <vector>

namespace tessera::cli {

namespace {

// Parts in lines of at most kColumns, with `gap` between those of a line.
std::string filled(const std::vector<std::string>& parts, const std::string& gap, const std::string& first,
                   const std::string& next) {
  std::string out, line = first;
  bool empty = true;  // no part is in the line yet
  for (const std::string& part : parts) {
    if (!empty && line.size() + gap.size() + part.size() > kColumns) {
      out += line + '\n';
      line = next;
      empty = true;
    }
    line += (empty ? "" : gap) + part;
    empty = false;
  }
  return out + line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

}  // namespace

std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  std::istringstream words(text);
  return filled({std::istream_iterator<std::string>(words), {}}, " ", first, next);
}

std::string fitted(const std::string& text, int stream) {
  const std::string gap = "  ";
  if (text.size() <= kColumns || text.find('\n') != std::string::npos || ::isatty(stream) != 1) return text + '\n';
  if (text.find(gap) == std::string::npos) return wrapped(text, "", gap);
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(gap, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return filled(parts, gap, "", gap);
}

}  // namespace tessera::cli
