// The project's speed bars that a bench can judge by itself, as ratios taken in one run.
#pragma once

#include <vector>

#include "bench/report/lines.h"

namespace tessera::cli {

// Returns a line for every bar that `lines` can judge: {"bench": "bar", "bar": ..., "of": ..., "value": ..., "bound":
// ..., "holds": ...}. docs/bench.md lists the bars. Bars against other programs are judged if the lines hold figures of
// those (peers.h).
std::vector<Line> judged(const std::vector<Line>& lines);

}  // namespace tessera::cli
