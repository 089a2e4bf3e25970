// Finds the format of dates and times that are not ISO 8601.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

// The values of `time_format` that read all of these texts. There are several if the texts do not tell days from
// months, as 01/02/2024 does not.
std::vector<std::string> time_formats_of(const std::vector<std::string>& texts);

}  // namespace tessera::cli
