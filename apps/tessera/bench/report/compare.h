// Two results of one bench: what changed beyond the noise.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// The lines of a file that `tessera bench --json` has printed, with peers' lines (peers.h) or with those alone.
// UsageError, one sentence with the line's number: no such file, text that is not JSON lines, no measurement in it.
// `option`: who asks, for messages.
std::vector<Line> read_result(const std::string& path, const std::string& option = "--compare");

// A time has changed when the quartiles of old and new do not overlap and the medians differ by at least this part.
inline constexpr double kLeastChange = 0.03;

// Lines to print: for each measurement that changed or that only one side has
//   {"bench": "change", "of": ..., "change": "faster" | "slower" | "new" | "gone", "before_us", "after_us", "percent"}
// and last {"bench": "compared", "same": N, "faster": N, "slower": N, "new": N, "gone": N, "note": ...}. The note names
// what makes the comparison doubtful, such as another machine; it is empty where nothing does. Peers' lines are left
// out.
std::vector<Line> compare(const std::vector<Line>& before, const std::vector<Line>& after);

}  // namespace tessera::cli
