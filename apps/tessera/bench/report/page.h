// Shows a bench's result as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "bench/report/html.h"
#include "bench/report/lines.h"

namespace tessera::cli {

// `lines` has everything that was printed: measurements, bars, changes, the run. The page has plots, the bars, all
// figures as tables, and the lines themselves. It is also well-formed XML, has no script and no address, and is
// readable in light and dark.
std::string page(const std::vector<Line>& lines);

// Throws kUnavailable.
void write_page(const std::string& path, const std::vector<Line>& lines);

}  // namespace tessera::cli
