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

// A time has changed when the medians differ by at least this part, and by more than both runs' own spread allows. The
// runs' rounds are not paired, for they were not done in turn: a rank test (Mann and Whitney, 1947) says how likely as
// different ones are where nothing has changed. Where a run has too few rounds for that, or does not tell them, its
// quartiles and the other's must not overlap.
inline constexpr double kLeastChange = 0.03, kUnlikely = 0.01;
inline constexpr size_t kRoundsToRank = 6;
// The two-sided probability of the rank test, by the normal approximation.
double rank_test(const std::vector<double>& a, const std::vector<double>& b);

// Lines to print: for each measurement that changed or that only one side has
//   {"bench": "change", "of": ..., "change": "faster" | "slower" | "new" | "gone", "before_us", "after_us", "percent",
//   "test"}
// ("test": "ranks, p 0.0004" or "quartiles"), and last {"bench": "compared", "same": N, "faster": N, "slower": N,
// "new": N, "gone": N, "by_ranks": N, "by_quartiles": N, "others_percent_before", "others_percent_after", "note": ...}.
// The note names what makes the comparison doubtful, such as another machine; it is empty where nothing does. Peers'
// lines are left out.
std::vector<Line> compare(const std::vector<Line>& before, const std::vector<Line>& after);

}  // namespace tessera::cli
