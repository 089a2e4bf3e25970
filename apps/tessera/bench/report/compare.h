// Compares two results of one bench and reports what changed beyond the noise.
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// The lines of a file that `tessera bench --json` has printed; peers' lines (peers.h) are allowed, also by themselves.
// Throws UsageError, one sentence with the line's number, if the file is missing, is not JSON lines, or has no
// measurement. `option` is the option that named the file, for messages.
std::vector<Line> read_result(const std::string& path, const std::string& option = "--compare");

// A time has changed if the medians differ by at least kLeastChange and by more than the spread of both runs allows.
// The runs' rounds are not paired, because they did not alternate. A rank test (Mann and Whitney, 1947) gives the
// probability of such a difference if nothing has changed. If a run has too few rounds for that, or does not report
// them, the quartiles of the two runs must not overlap.
inline constexpr double kLeastChange = 0.03, kUnlikely = 0.01;
inline constexpr size_t kRoundsToRank = 6;
// The two-sided probability of the rank test, by the normal approximation.
double rank_test(const std::vector<double>& a, const std::vector<double>& b);

// Returns lines to print. Each measurement that changed, or that only one side has, gives
//   {"bench": "change", "of": ..., "change": "faster" | "slower" | "new" | "gone", "before_us", "after_us", "percent",
//   "test"}
// ("test": "ranks, p 0.0004" or "quartiles"), and last {"bench": "compared", "same": N, "faster": N, "slower": N,
// "new": N, "gone": N, "by_ranks": N, "by_quartiles": N, "others_percent_before", "others_percent_after", "note": ...}.
// The note says why the comparison is doubtful, for example another machine; otherwise it is empty. Peers' lines are
// left out.
std::vector<Line> compare(const std::vector<Line>& before, const std::vector<Line>& after);

}  // namespace tessera::cli
