// Shows a run's report as one HTML page that needs nothing else: curves, metrics, plan, stages, settings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace tessera::cli {

// `report` is TrainJob::report().
std::string train_page(const nlohmann::ordered_json& report);

}  // namespace tessera::cli
