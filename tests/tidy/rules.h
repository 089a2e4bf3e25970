// The project's style, where a machine can check it: what CONTRIBUTING.md asks for, as functions over a file's text.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tidy {

// One breach. `rule` is the name that exceptions.txt uses.
struct Finding {
  std::string rule;
  std::string path;
  size_t line = 0;  // 1-based; 0: the file as a whole
  std::string text;
};

// A function of a C or C++ file: from the line of its head to that of its closing brace.
struct Function {
  size_t first_line = 0;
  size_t lines = 0;
};

// The same text with comments, the insides of strings and characters, and preprocessor lines replaced by spaces; line
// ends stay where they are.
std::string code_only(std::string_view source);

// A string as it is written, without its quotes. Raw ones and those of preprocessor lines are left out.
struct Literal {
  size_t line = 0;
  std::string_view text;  // of the source
};
std::vector<Literal> literals(std::string_view source);

// Functions at namespace or class scope, found by their braces: a heuristic that is right for code as clang-format
// leaves it.
std::vector<Function> functions(std::string_view source);

// Numbers of the lines with a comment, or a paragraph's first sentence, that opens as a fragment does: "Of the next few
// rows", "What a signal ends". A sentence with a subject and a verb reads at once.
std::vector<size_t> fragments_in_code(const std::vector<std::string_view>& lines);
std::vector<size_t> fragments_in_page(const std::vector<std::string_view>& lines);

// Ids of the components that a plugin's source registers; none for other files.
std::set<std::string> component_ids(const std::string& path, const std::string& text);

// Everything that is wrong with one file. `path` is relative to the repository, with '/'; it decides which rules apply.
// `ids` are those of all components, which the core may not name. `core_headers` are headers of core/src, as includes
// name them; each include of one in apps/ is a breach of the rule "core-include:HEADER".
std::vector<Finding> check(const std::string& path, const std::string& text, const std::set<std::string>& ids = {},
                           const std::set<std::string>& core_headers = {});

// Lines of a folder of the core.
struct FolderLines {
  size_t sources = 0;
  size_t tests = 0;
};
// Counts a file to its folder, a folder of core/src; others to none.
void count_lines(const std::string& path, const std::string& text, std::map<std::string, FolderLines>& folders);

// One line of exceptions.txt or core_includes.txt: "rule path reason".
struct Exception {
  std::string rule;
  std::string path;
  std::string reason;
};

// Lines that are empty or begin with '#' are skipped; an exception without a reason is a finding.
std::vector<Exception> parse_exceptions(const std::string& path, const std::string& text,
                                        std::vector<Finding>& findings);

// Takes out what an exception allows, and reports exceptions that allow nothing any more.
std::vector<Finding> apply_exceptions(std::vector<Finding> findings, const std::vector<Exception>& exceptions,
                                      const std::string& exceptions_path);

}  // namespace tidy
