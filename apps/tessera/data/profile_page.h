// Shows the profile of files as a page: what was seen of each column, with a small histogram.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"

namespace tessera::cli {

// A whole HTML page that needs nothing else. `about` says which rows were looked at.
std::string profile_page(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                         const std::string& about, const std::string& job);

// How often values come, and how long lists are: pictures, or nothing.
std::string histograms(const ColumnSeen& column);

}  // namespace tessera::cli
