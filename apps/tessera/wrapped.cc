#include "wrapped.h"

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

}  // namespace tessera::cli
