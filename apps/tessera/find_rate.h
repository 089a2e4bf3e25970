// A learning rate by one short run whose rate rises until the loss does (Smith, Cyclical Learning Rates for Training
// Neural Networks, 2017).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/config.h"

namespace tessera::cli {

struct RateLoss {
  double rate = 0, loss = 0;  // the smoothed loss of the batches up to one that was trained with the rate
};

// The rate at which the loss falls fastest over the rates' logarithm, before its least value; unset: it never falls.
std::optional<double> steepest(const std::vector<RateLoss>& curve);

// Trains `config` for up to `steps` batches, with learning rates from a thousandth of the config's to a thousand times
// them, of the `tables`, of the `dense` layers, or of `all`. Prints the loss by rate, and one suggestion. Returns the
// exit status.
int find_rate(Config config, const std::string& of, int64_t steps);

}  // namespace tessera::cli
