// Other programs' figures beside the bench's own. A peer's line is a line like a bench's (lines.h) with the program's
// name in "peer"; circumstances that it leaves out, such as "kernel", it shares with whatever was measured:
//
//   {"bench": "lookup", "peer": "FBGEMM", "pass": "forward", "T": 1, "E": 1000000, "D": 64, "B": 2048, "L": 20,
//    "dtype": "fp32", "threads": 1, "alpha": 0, "round": 3, "median_us": 812.5}
//
// One line for each round that was done in turn with a round of the bench, whose line has the same "round".
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

bool is_peer(const Line& line);
std::vector<Line> peers_among(const std::vector<Line>& lines);
// Peers' lines of another run: without their rounds' numbers, which say nothing about this one's.
std::vector<Line> peers_of_another_run(const std::vector<Line>& lines);
std::vector<Line> without_peers(const std::vector<Line>& lines);

// Why this cannot be a peer's line; empty: it can.
std::string fault_of_peer(const Line& line);

// The peers' lines with the circumstances of what they are to be compared with, so that both are of one workload. Those
// that fit nothing in `lines` stay as they are, and `strangers` gets a text of each.
std::vector<Line> completed_peers(const std::vector<Line>& peers, const std::vector<Line>& lines,
                                  std::vector<std::string>* strangers);

// A bar (bars.h) for each measurement and each peer that fits it: how many times the peer's time is the measurement's.
// The median of the ratios of rounds where both have rounds of the same numbers, otherwise the ratio of the medians,
// and the bar says "not interleaved". "bound" and "holds" are null where nothing is demanded.
std::vector<Line> peer_bars(const std::vector<Measured>& results);

}  // namespace tessera::cli
