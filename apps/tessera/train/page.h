// Shows a run's report as one HTML page that needs nothing else: curves, metrics, plan, stages, settings.
#pragma once

#include <string>

#include "tessera/train_job.h"

namespace tessera::cli {

std::string train_page(const RunReport& report);

}  // namespace tessera::cli
