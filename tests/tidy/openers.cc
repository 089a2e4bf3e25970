#include <algorithm>
#include <array>
#include <cctype>

#include "rules.h"

namespace tidy {
namespace {

constexpr std::array<std::string_view, 10> kFragments = {"Of",   "What",  "Where", "Whether", "Who",
                                                         "That", "Whose", "Such",  "Behind",  "Likewise"};
constexpr std::array<std::string_view, 4> kOfComments = {"As", "To", "In", "By"};  // pages may begin a sentence so

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.front())) != 0) line.remove_prefix(1);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())) != 0) line.remove_suffix(1);
  return line;
}

bool begins_fragment(std::string_view sentence, bool comment) {
  const std::string_view word = sentence.substr(0, sentence.find_first_of(" ,:;.?"));
  return std::find(kFragments.begin(), kFragments.end(), word) != kFragments.end() ||
         (comment && std::find(kOfComments.begin(), kOfComments.end(), word) != kOfComments.end());
}

// The words of a line that is a comment as a whole; empty for all other lines.
std::string_view comment_of(std::string_view line) {
  line = trimmed(line);
  for (const std::string_view mark : {"// ", "/* ", "* "}) {
    if (line.starts_with(mark)) return trimmed(line.substr(mark.size()));
  }
  return {};
}

// The words of a comment after code, which clang-format sets apart by two spaces.
std::string_view trailing_comment_of(std::string_view line) {
  const size_t at = line.rfind("  // ");
  return at == std::string_view::npos || trimmed(line).starts_with("//") ? std::string_view() : line.substr(at + 5);
}

bool ends_sentence(std::string_view text) {
  return text.empty() || text.ends_with('.') || text.ends_with(':') || text.ends_with("*/");
}

}  // namespace

std::vector<size_t> fragments_in_code(const std::vector<std::string_view>& lines) {
  std::vector<size_t> found;
  std::string_view before;  // the comment of the line before
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string_view comment = comment_of(lines[i]);
    if ((ends_sentence(before) && begins_fragment(comment, true)) ||
        begins_fragment(trailing_comment_of(lines[i]), true))
      found.push_back(i + 1);
    before = comment;
  }
  return found;
}

// A paragraph's first sentence; lists, tables, headings and code are no paragraphs.
std::vector<size_t> fragments_in_page(const std::vector<std::string_view>& lines) {
  std::vector<size_t> found;
  bool code = false, inside = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trimmed(lines[i]).starts_with("```")) code = !code;
    if (!code && !inside && begins_fragment(lines[i], false)) found.push_back(i + 1);
    inside = !trimmed(lines[i]).empty();
  }
  return found;
}

}  // namespace tidy
