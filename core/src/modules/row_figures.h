// RowFigures as JSON in checkpoints and models.
#pragma once

#include <nlohmann/json.hpp>

#include "config/json.h"
#include "tessera/embedding_configs.h"

namespace tessera {

nlohmann::ordered_json to_json(const RowFigures& figures);
RowFigures row_figures_from(const config::JsonObject& j);  // errors are the object's

}  // namespace tessera
