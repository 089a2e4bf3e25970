// Texts of a job file.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// A string of TOML, whose escapes are JSON's.
std::string quoted(const std::string& text);
// In small letters, as far as they are ASCII.
std::string lower(std::string text);
// A number without more digits than it needs; whole ones in all their digits where a double has them.
std::string plain_number(double value);
// The number with 4 digits, for people.
std::string short_number(double value);
// The number with no more decimals than `step` needs.
std::string rounded(double value, double step);
// Lines of a comment, each of at most 100 columns, with "# " before them.
std::string comment(const std::string& text);
// `text`, each line of it as a comment.
std::string commented(const std::string& text);
// "a", "b" and "c" without more than `most` of them.
std::string listed(const std::vector<std::string>& texts, size_t most);

}  // namespace tessera::cli
