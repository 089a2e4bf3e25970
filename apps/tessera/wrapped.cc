#include "wrapped.h"

#include <unistd.h>

#include <sstream>

namespace tessera::cli {

std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  std::istringstream words(text);
  std::string out, line = first;
  bool empty = true;  // no word is in the line yet
  for (std::string word; words >> word; empty = false) {
    if (!empty && line.size() + 1 + word.size() > kColumns) {
      out += line + '\n';
      line = next;
      empty = true;
    }
    line += (empty ? "" : " ") + word;
  }
  return out + line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

std::string fitted(const std::string& text, int stream) {
  constexpr const char* kIndent = "  ";
  if (text.size() <= kColumns || text.find('\n') != std::string::npos || ::isatty(stream) != 1) return text + '\n';
  constexpr std::string_view kGap = "  ";
  if (text.find(kGap) == std::string::npos) return wrapped(text, "", kIndent);
  std::string out, line;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end) {
    end = std::min(text.find(kGap, begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    if (!line.empty() && line.size() + kGap.size() + part.size() > kColumns) {
      out += line + '\n';
      line = kIndent + part;
    } else {
      line += (line.empty() ? "" : kGap.data()) + part;
    }
    end = std::min(text.find_first_not_of(' ', end), text.size());
  }
  return out + line + '\n';
}

}  // namespace tessera::cli
