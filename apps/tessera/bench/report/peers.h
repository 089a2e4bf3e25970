// Other programs' figures, compared with the bench's own. A peer's line looks like a bench's (lines.h) with the
// program's name in "peer". Circumstances that it leaves out, such as "kernel", match any value:
//
//   {"bench": "lookup", "peer": "FBGEMM", "pass": "forward", "T": 1, "E": 1000000, "D": 64, "B": 2048, "L": 20,
//    "dtype": "fp32", "threads": 1, "alpha": 0, "round": 3, "median_us": 812.5}
//
// There is one line per round. If the rounds alternated with the bench's, both lines of a round have the same "round".
#pragma once

#include <string>
#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

bool is_peer(const Line& line);
std::vector<Line> peers_among(const std::vector<Line>& lines);
// Removes the round numbers from peers' lines of another run, because they do not match this run's rounds.
std::vector<Line> peers_of_another_run(const std::vector<Line>& lines);
std::vector<Line> without_peers(const std::vector<Line>& lines);

// The reason why this cannot be a peer's line; empty if it can.
std::string fault_of_peer(const Line& line);

// Adds to the peers' lines the circumstances of the measurements that they are compared with, so that both have the
// same workload. Lines that fit nothing in `lines` stay unchanged, and `strangers` gets a text for each.
std::vector<Line> completed_peers(const std::vector<Line>& peers, const std::vector<Line>& lines,
                                  std::vector<std::string>* strangers);

// A bar (bars.h) for each measurement and each peer that fits it: the peer's time divided by the measurement's. The
// value is the median of the ratios of rounds with the same numbers. Without those, it is the ratio of the medians, and
// the bar says "not interleaved". "bound" and "holds" are null if nothing is demanded.
std::vector<Line> peer_bars(const std::vector<Measured>& results);

}  // namespace tessera::cli
