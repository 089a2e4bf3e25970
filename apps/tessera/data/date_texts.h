// Recognises texts that are dates in a form that no reader takes.
#pragma once

#include <string_view>

namespace tessera::cli {

// True for 31.05.2022, 9/30/1990 0:00:00, Mar-2018, 2023:03:22 10:00:00, 22. März 2023 and other texts that have a
// year and a month, or three groups of digits.
bool like_date(std::string_view text);

}  // namespace tessera::cli
