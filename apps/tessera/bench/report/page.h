// Shows a bench's result as one HTML page that needs nothing else.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"
#include "page/page_file.h"

namespace tessera::cli {

// `lines` has everything that was printed: measurements, bars, changes, the run. The page has plots, the bars, all
// figures as tables, and the lines themselves.
std::string bench_title(const std::vector<Line>& lines);
PageParts bench_parts(const std::vector<Line>& lines);

// Throws kUnavailable.
void write_bench_page(const std::string& path, const std::vector<Line>& lines);

}  // namespace tessera::cli
