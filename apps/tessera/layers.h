// Names the components that compute dense layers, for people and for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/dense.h"

namespace tessera::cli {

// {"mlp": {"component": "acme.mlp", "instead_of": ["mlp"]}, ...}
nlohmann::ordered_json layers_json(const std::vector<LayerChoice>& layers);
// A line for each layer that the component of its own name does not compute, for example "layer mlp: computed by
// acme.mlp instead of mlp".
std::vector<std::string> replaced_layers(const std::vector<LayerChoice>& layers);

}  // namespace tessera::cli
