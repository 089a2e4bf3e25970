// The job files of configs/models, which are part of the program (cmake/model_presets.cmake).
#pragma once

#include <span>

namespace tessera::cli {

struct ModelPreset {
  const char* name;  // "deepfm"
  const char* text;  // TOML
};
std::span<const ModelPreset> model_presets();  // by name

}  // namespace tessera::cli
