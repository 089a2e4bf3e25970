// The core's own metrics.
#pragma once

#include <string>
#include <vector>

#include "tessera/metrics.h"

namespace tessera::metrics {

// Makes a metric; null: there is none of this name. `as_torchrec`: TorchRec's values for undefined cases, its order of
// equal scores in AUC (order of arrival), and its logloss in bits. kInvalidArgument: `options`, a JSON object, are
// wrong.
MetricPtr make_formula(const std::string& name, const std::string& options, bool as_torchrec);

std::vector<std::string> formula_names();  // ascending

double sigmoid(double logit);

}  // namespace tessera::metrics
