// Shows the profile of files as a page: what was seen of each column, with a small histogram.
#pragma once

#include <string>
#include <vector>

#include "data/column_look.h"
#include "data/decisions.h"
#include "page/page_file.h"

namespace tessera::cli {

// The parts of a page. `about` says which rows were looked at.
PageParts profile_page(const std::vector<ColumnSeen>& columns, const std::vector<Decision>& decisions,
                       const std::string& about, const std::string& job);

// Adds charts of how often values come, and how long lists are.
void add_histograms(PageParts* parts, const ColumnSeen& column);

}  // namespace tessera::cli
