// The plots of a bench's page, each as HTML with an inline image; empty where the results have nothing to show so.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// A chart for each workload: the median time of every contender as a bar, p10 to p90 as a whisker. Contenders differ in
// what names_contender() says; workloads in anything else.
std::string time_bars(const std::vector<Measured>& results);

// A chart for each number that was varied, such as bytes or B: time over it, both logarithmic, a line for each series.
std::string growth_charts(const std::vector<Measured>& results);

// For lookups that were measured beside the machine's gather limit: bytes of rows a second, and that limit as a line.
std::string rooflines(const std::vector<Measured>& results);

// The parts of a step's time: a stacked bar for each result that has stages.
std::string stage_bars(const std::vector<Measured>& results);

}  // namespace tessera::cli
