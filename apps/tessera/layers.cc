#include "layers.h"

namespace tessera::cli {

nlohmann::ordered_json layers_json(const std::vector<LayerChoice>& layers) {
  auto out = nlohmann::ordered_json::object();
  for (const LayerChoice& l : layers) out[l.layer] = {{"component", l.component}, {"instead_of", l.instead_of}};
  return out;
}

std::string layers_text(const std::vector<LayerChoice>& layers) {
  std::string text;
  for (const LayerChoice& l : layers) {
    text += (text.empty() ? "" : ", ") + l.layer + " by " + l.component;
    for (size_t i = 0; i < l.instead_of.size(); ++i) text += (i == 0 ? " instead of " : " and ") + l.instead_of[i];
  }
  return text;
}

}  // namespace tessera::cli
