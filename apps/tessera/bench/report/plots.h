// The plots of a bench's page, each as HTML with an inline image; empty if the results have nothing to plot.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A chart per workload: each contender's median time as a bar, p10 to p90 as a whisker. names_contender() lists what
// tells contenders apart; anything else makes another workload.
std::string time_bars(const std::vector<Measured>& results);

// A chart for each number that was varied, such as bytes or B: time over that number, both logarithmic, a line per
// series.
std::string growth_charts(const std::vector<Measured>& results);

// A chart for lookups that were measured together with the machine's gather limit: bytes of rows per second, and the
// limit as a line.
std::string rooflines(const std::vector<Measured>& results);

// The stages of a step's time: a stacked bar for each result that has stages.
std::string stage_bars(const std::vector<Measured>& results);

}  // namespace tessera::cli
