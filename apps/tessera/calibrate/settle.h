// When figures are good enough to plan with.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/machine.h"

namespace tessera::cli {

// The first figure that no machine can have, in words: exchanges, products or rows that take no time, which is what a
// fit makes of times that other programs have torn. "" where there is none.
std::string impossible_figure(const Machine& machine);

struct Calibration {
  Machine machine;
  std::optional<double> others;  // share of the processors' time that other programs used meanwhile, where known
};

// Measures until nothing else ran and the figures can be, at most three times; `say` gets a line each time it is not
// so. Then the quietest possible figures, with a line that says how loud it was. kUnavailable where none can be.
Machine settled(const std::function<Calibration()>& measure, const std::function<void(const std::string&)>& say);

}  // namespace tessera::cli
