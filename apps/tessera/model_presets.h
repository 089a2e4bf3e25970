// The job files of configs/models, compiled into the program (cmake/model_presets.cmake). `tessera model new` writes
// how to train one before it.
#pragma once

#include <span>

namespace tessera::cli {

struct ModelPreset {
  const char* name;  // such as "deepfm"
  const char* text;  // TOML
};
std::span<const ModelPreset> model_presets();  // sorted by name

}  // namespace tessera::cli
