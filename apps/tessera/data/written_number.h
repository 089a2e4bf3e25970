// Reads numbers as people write them: $12.99, 50 %, 1,234,567, 65,5, 1.234,5.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// The [[column]] keys that make a reader understand them.
struct WrittenNumber {
  std::string strip;       // characters to remove
  std::string decimal;     // the decimal sign; empty means the point
  bool ambiguous = false;  // the comma groups digits in threes, and could be a decimal sign
  bool two_ids = false;    // the decimal comma could stand between two ids: 35,20
  // Then they are hardly numbers, because the digits after the comma differ in number, and some end in a zero.
  bool likely_ids = false;

  // Unset if the text is not a number.
  std::optional<double> read(std::string_view text) const;
};

// The keys that turn all of these texts into numbers, if at least one of them needs a key. Otherwise unset.
std::optional<WrittenNumber> written_numbers(const std::vector<std::string>& texts);

}  // namespace tessera::cli
