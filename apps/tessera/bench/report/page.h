// A bench's result as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "bench/report/html.h"
#include "bench/report/lines.h"

namespace tessera::cli {

// lines: everything that was printed: measurements, bars, changes, the run. Plots, the bars on speed, all figures as
// tables, and the lines themselves. Well-formed XML too; no script, no address, readable in light and dark.
std::string page(const std::vector<Line>& lines);

// Errors: kUnavailable.
void write_page(const std::string& path, const std::vector<Line>& lines);

}  // namespace tessera::cli
