// Reads just enough C++ to find comments and strings, and where functions begin and end.
#include <algorithm>
#include <cctype>

#include "rules.h"

namespace tidy {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Copies the source and blanks everything that is not code.
class Blanker {
 public:
  explicit Blanker(std::string_view source) : source_(source), out_(source) {}

  std::string run() {
    while (at_ < source_.size()) step();
    return std::move(out_);
  }
  const std::vector<Literal>& literals() const { return literals_; }

 private:
  bool starts(std::string_view what) const { return source_.substr(at_, what.size()) == what; }
  bool raw_string_here() const {
    return starts("R\"") && (at_ == 0 || !is_word(source_[at_ - 1]) || source_[at_ - 1] == '8');
  }
  // A quote between digits is a separator: 1'000.
  bool character_here() const { return source_[at_] == '\'' && (at_ == 0 || !is_word(source_[at_ - 1])); }

  void blank_to(size_t end) {
    for (end = std::min(end, source_.size()); at_ < end; ++at_) {
      if (source_[at_] != '\n') out_[at_] = ' ';
    }
  }

  size_t find(std::string_view what, size_t from) const {
    const size_t found = source_.find(what, from);
    return found == std::string_view::npos ? source_.size() : found;
  }

  size_t end_of_logical_line() const {
    size_t end = find("\n", at_);
    while (end < source_.size() && end > 0 && source_[end - 1] == '\\') end = find("\n", end + 1);
    return end;
  }

  size_t end_of_quoted(char quote) const {
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote && source_[i] != '\n') i += source_[i] == '\\' ? 2 : 1;
    return i + 1;
  }

  void step() {
    const char c = source_[at_];
    if (c == '\n') line_empty_ = true;
    if (starts("//") || (c == '#' && line_empty_)) {
      blank_to(end_of_logical_line());
    } else if (starts("/*")) {
      blank_to(find("*/", at_ + 2) + 2);
    } else if (raw_string_here()) {
      const size_t open = find("(", at_);
      const std::string close = ")" + std::string(source_.substr(at_ + 2, open - at_ - 2)) + "\"";
      blank_to(find(close, open) + close.size());
    } else if (c == '"') {
      const size_t end = end_of_quoted('"');
      const auto lines = std::count(source_.begin(), source_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
      literals_.push_back({static_cast<size_t>(lines) + 1, source_.substr(at_ + 1, end - at_ - 2)});
      blank_to(end);
    } else if (character_here()) {
      blank_to(end_of_quoted('\''));
    } else {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) line_empty_ = false;
      ++at_;
    }
  }

  std::string_view source_;
  std::string out_;
  std::vector<Literal> literals_;
  size_t at_ = 0;
  bool line_empty_ = true;
};

// True if the text between the last statement and a '{' opens a namespace, a type or a list rather than a function.
bool opens_scope(std::string_view head) {
  if (head.find('(') == std::string_view::npos) return true;
  size_t i = 0;
  std::string word;
  while (i < head.size()) {
    if (!is_word(head[i])) {
      ++i;
      continue;
    }
    word.clear();
    while (i < head.size() && is_word(head[i])) word += head[i++];
    if (word == "class" || word == "struct" || word == "union" || word == "enum" || word == "namespace" ||
        word == "extern") {
      // A function may return "struct x"; a type's head has no parameter list after its name.
      const size_t paren = head.rfind(')');
      return paren == std::string_view::npos || head.find(':', paren) != std::string_view::npos ||
             head.find("alignas") != std::string_view::npos || head.find("__attribute__") != std::string_view::npos;
    }
    if (word != "template" && word != "static" && word != "typedef" && word != "inline" && word != "typename") break;
    if (word == "template") {  // skip its parameters
      int depth = 0;
      for (; i < head.size(); ++i) {
        depth += head[i] == '<' ? 1 : head[i] == '>' ? -1 : 0;
        if (head[i] == '>' && depth == 0) break;
      }
    }
  }
  return false;
}

bool is_access(std::string_view head) { return head == "public" || head == "protected" || head == "private"; }

}  // namespace

std::vector<Literal> literals(std::string_view source) {
  Blanker blanker(source);
  blanker.run();
  return blanker.literals();
}

std::string code_only(std::string_view source) { return Blanker(source).run(); }

std::vector<Function> functions(std::string_view source) {
  const std::string code = code_only(source);
  std::vector<Function> found;
  size_t line = 1;
  size_t head_begin = 0;  // the text since the last ';', '{' or '}' outside functions
  size_t head_line = 1;
  int depth = 0;  // braces open inside the current function; 0 outside
  for (size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '\n') ++line;
    if (depth > 0) {
      depth += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (depth > 0) continue;
      found.push_back({head_line, line - head_line + 1});
      head_begin = i + 1;
      continue;
    }
    if (head_begin == i && std::isspace(static_cast<unsigned char>(c)) != 0) {
      head_begin = i + 1;
      continue;
    }
    if (head_begin == i) head_line = line;
    if (c == '{' && !opens_scope(std::string_view(code).substr(head_begin, i - head_begin))) {
      depth = 1;
    } else if (c == ';' || c == '{' || c == '}' || (c == ':' && is_access(code.substr(head_begin, i - head_begin)))) {
      head_begin = i + 1;
    }
  }
  return found;
}

}  // namespace tidy
