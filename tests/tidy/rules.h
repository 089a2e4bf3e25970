// The machine-checked part of the project's style (see CONTRIBUTING.md), as functions over a file's text.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tidy {

// One violation. `rule` is the name that exceptions.txt uses.
struct Finding {
  std::string rule;
  std::string path;
  size_t line = 0;  // 1-based; 0: the file as a whole
  std::string text;
};

// A function of a C or C++ file, from the line of its head to that of its closing brace.
struct Function {
  size_t first_line = 0;
  size_t lines = 0;
};

// The same text with comments, the content of strings and characters, and preprocessor lines replaced by spaces; line
// ends stay.
std::string code_only(std::string_view source);

// A string as written, without its quotes. Raw strings and those of preprocessor lines are left out.
struct Literal {
  size_t line = 0;
  std::string_view text;  // a view of the source
};
std::vector<Literal> literals(std::string_view source);

// Functions at namespace or class scope, found by their braces: a heuristic that is right for code formatted by
// clang-format.
std::vector<Function> functions(std::string_view source);

// Ids of the components that a plugin's source registers; empty for other files.
std::set<std::string> part_ids(const std::string& path, const std::string& text);

// All violations in one file. `path` is relative to the repository, with '/'; it decides which rules apply. `parts` are
// the ids of all installed components, which the core may not name.
std::vector<Finding> check(const std::string& path, const std::string& text, const std::set<std::string>& parts = {});

// Lines of a folder of the core.
struct FolderLines {
  size_t sources = 0;
  size_t tests = 0;
};
// Adds a file's lines to its folder of core/src; ignores other files.
void count_lines(const std::string& path, const std::string& text, std::map<std::string, FolderLines>& folders);

// One line of exceptions.txt: "rule path reason".
struct Exception {
  std::string rule;
  std::string path;
  std::string reason;
};

// Lines that are empty or begin with '#' are skipped; an exception without a reason is a finding.
std::vector<Exception> parse_exceptions(const std::string& path, const std::string& text,
                                        std::vector<Finding>& findings);

// Removes findings that an exception allows, and reports exceptions that allow nothing any more.
std::vector<Finding> apply_exceptions(std::vector<Finding> findings, const std::vector<Exception>& exceptions,
                                      const std::string& exceptions_path);

}  // namespace tidy
