// Numbers as people write them: $12.99, 50 %, 1,234,567, 65,5, 1.234,5.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

// The [[column]] keys that read them.
struct WrittenNumber {
  std::string strip;       // characters that are left out
  std::string decimal;     // the decimal sign; empty: the point
  bool ambiguous = false;  // the comma groups digits in threes, and could be a decimal sign

  // Empty: the text is no number.
  std::optional<double> read(std::string_view text) const;
};

// The keys by which all of these texts are numbers, of which at least one needs them. Empty: there are none.
std::optional<WrittenNumber> written_numbers(const std::vector<std::string>& texts);

}  // namespace tessera::cli
