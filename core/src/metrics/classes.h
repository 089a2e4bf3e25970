// Metrics of heads whose label is the number of a class.
#pragma once

#include <string>
#include <vector>

#include "tessera/metrics.h"
#include "tessera/sdk/options.h"

namespace tessera::metrics {

// Null: there is none of this name. Throws sdk::Failure for wrong options.
MetricPtr make_of_classes(const std::string& name, sdk::Options& options);

std::vector<std::string> class_metric_names();

}  // namespace tessera::metrics
