// The plots of a bench's page, as its parts; empty if the results have nothing to plot.
#pragma once

#include <vector>

#include "bench/report/lines.h"
#include "page/page_file.h"

namespace tessera::cli {

// A chart per workload: each contender's median time as a bar, p10 to p90 as a whisker. names_contender() lists what
// tells contenders apart; anything else makes another workload.
PageParts time_bars(const std::vector<Measured>& results);

// A chart for each number that was varied, such as bytes or B: time over that number, both logarithmic, a line per
// series.
PageParts growth_charts(const std::vector<Measured>& results);

// A chart for lookups that were measured together with the machine's gather limit: bytes of rows per second, and the
// limit as a line.
PageParts rooflines(const std::vector<Measured>& results);

// The stages of a step's time: a stacked bar for each result that has stages.
PageParts stage_bars(const std::vector<Measured>& results);

}  // namespace tessera::cli
