// The metrics that are the core's own.
#pragma once

#include <string>
#include <vector>

#include "tessera/metrics.h"

namespace tessera::metrics {

// Null: there is none of this name. `as_torchrec`: with TorchRec's values where one is not defined, its order of equal
// scores (as they came) in AUC, and its logloss, which is in bits. kInvalidArgument: `options`, a JSON object.
MetricPtr make_formula(const std::string& name, const std::string& options, bool as_torchrec);

std::vector<std::string> formula_names();  // ascending

double sigmoid(double logit);

}  // namespace tessera::metrics
