// Helpers that format texts of a job file.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// A TOML string; its escapes are those of JSON.
std::string quoted(const std::string& text);
// Otherwise std::quoted would be chosen for a string that is not const, and it escapes no line feeds.
inline std::string quoted(std::string& text) { return quoted(static_cast<const std::string&>(text)); }
// Converts ASCII letters to lower case.
std::string lower(std::string text);
// A number with no more digits than it needs. Whole numbers have all their digits, as far as a double has them.
std::string plain_number(double value);
// The number rounded to 4 digits, for people.
std::string short_number(double value);
// The number with no more decimals than `step` needs.
std::string rounded(double value, double step);
// The date of days since 1970: 2024-01-31.
std::string date_text(double days);
// Lines of a comment, each of at most 80 columns and starting with "# ".
std::string comment(const std::string& text);
// `text` with each of its lines turned into a comment.
std::string commented(const std::string& text);
// At most `most` of the texts, as "a", "b" and "c".
std::string listed(const std::vector<std::string>& texts, size_t most);

}  // namespace tessera::cli
