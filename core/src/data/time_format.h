// Dates and times in other forms than ISO 8601, by a format as strptime() has it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// Why a format is refused, as the end of a sentence; empty: it can be used. It has %Y or %y, and %m, %b or %B. It may
// have %d, %H or %I with %p, %M, %S, %f (digits of a second), %z (a zone as +01:00, -0530 or Z) and %a or %A (the name
// of a weekday, which is not checked). %% is a percent sign. A blank is any number of blanks; other characters are
// themselves.
std::string wrong_time_format(std::string_view format);

// Parses a whole text by a format that is not refused: nanoseconds since 1970-01-01 00:00:00 UTC. Numbers may lack
// their leading zero. Names of months and weekdays are English, long or of three letters, in any case. %y is 1969 to
// 2068. Empty: the text is something else.
std::optional<int64_t> time_by(std::string_view format, std::string_view text);

// The formats that read all of these texts, among those that dates and times which are not ISO 8601 have. There are
// several if the texts do not tell days from months, as 01/02/2024 does not.
std::vector<std::string> time_formats_of(const std::vector<std::string>& texts);

}  // namespace tessera::data
