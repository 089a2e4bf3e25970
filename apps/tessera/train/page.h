// Shows a run's report as one HTML page that needs nothing else: metrics, curves, plan, stages, settings.
#pragma once

#include <string>

#include "tessera/train_job.h"

namespace tessera::cli {

// Throws kUnavailable if the file cannot be written.
void write_train_page(const std::string& path, const RunReport& report);

}  // namespace tessera::cli
