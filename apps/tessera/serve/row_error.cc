#include "serve/row_error.h"

#include <charconv>

#include "tessera/data.h"
#include "tessera/error.h"

namespace tessera::serve {
namespace {

// A sentence about a sample, in parts.
struct AboutSample {
  std::string_view input;  // the input's name; empty: it names none
  std::string_view rest;   // begins with the sample's number
};

// Splits "BEFORE name BETWEEN number ...". Returns false for other sentences.
bool split(std::string_view sentence, std::string_view before, std::string_view between, AboutSample& out) {
  const size_t at = sentence.find(between);
  if (!sentence.starts_with(before) || at == std::string_view::npos || at < before.size()) return false;
  out = {sentence.substr(before.size(), at - before.size()), sentence.substr(at + between.size())};
  return true;
}

// The name of the files' column that an input is made of.
std::string column_of(std::string_view input, const ColumnEncoding* columns) {
  for (const std::string_view end : {".values", ".lengths", ".weights"}) {
    if (input.ends_with(end)) input.remove_suffix(end.size());
  }
  const ColumnConfig* const column = columns != nullptr ? columns->column(std::string(input)) : nullptr;
  return column == nullptr || column->column.empty() ? std::string(input) : column->column;
}

}  // namespace

std::string row_error(std::string_view sentence, const ColumnEncoding* columns) {
  constexpr std::string_view kRow = ".values: row ", kSample = "sample ";
  if (const size_t at = sentence.find(kRow); sentence.starts_with("input ") && at != std::string_view::npos)
    return std::string(sentence.substr(at + kRow.find("row")));
  AboutSample about;
  if (sentence.starts_with(kSample))
    about.rest = sentence.substr(kSample.size());
  else if (!split(sentence, "input ", " of sample ", about) && !split(sentence, "feature \"", "\", sample ", about))
    return std::string(sentence);
  int64_t sample = 0;
  const char* const end = about.rest.data() + about.rest.size();
  const auto [stop, error] = std::from_chars(about.rest.data(), end, sample);
  if (error != std::errc()) return std::string(sentence);
  const std::string_view why(stop, static_cast<size_t>(end - stop));
  if (about.input.empty()) return str_cat("row ", sample + 1, why);
  return str_cat("row ", sample + 1, ", column \"", column_of(about.input, columns), '"',
                 why.starts_with(' ') ? ": it" : "", why);
}

}  // namespace tessera::serve
