// Names the components that compute dense layers, for people and for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/dense.h"

namespace tessera::cli {

// {"mlp": {"component": "acme.mlp", "instead_of": ["mlp"]}, ...}
nlohmann::ordered_json layers_json(const std::vector<LayerChoice>& layers);
// "mlp by acme.mlp instead of mlp, cross by cross"
std::string layers_text(const std::vector<LayerChoice>& layers);

}  // namespace tessera::cli
