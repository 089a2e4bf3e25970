#include "layers.h"

namespace tessera::cli {

nlohmann::ordered_json layers_json(const std::vector<LayerChoice>& layers) {
  auto out = nlohmann::ordered_json::object();
  for (const LayerChoice& l : layers) out[l.layer] = {{"component", l.component}, {"instead_of", l.instead_of}};
  return out;
}

std::vector<std::string> replaced_layers(const std::vector<LayerChoice>& layers) {
  std::vector<std::string> lines;
  for (const LayerChoice& l : layers) {
    if (l.component == l.layer && l.instead_of.empty()) continue;
    lines.push_back("layer " + l.layer + ": computed by " + l.component);
    for (size_t i = 0; i < l.instead_of.size(); ++i)
      lines.back() += (i == 0 ? " instead of " : " and ") + l.instead_of[i];
  }
  return lines;
}

}  // namespace tessera::cli
