// The job of an imported model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/layer_builder.h"

namespace tessera::cli {

struct ImportedTable {
  std::string name;
  int64_t dim = 0;
  bool sequence = false;
};

struct ImportedJob {
  std::string source, directory;  // of its first comment
  int64_t dense = 0;
  int64_t labels = 1;
  std::vector<ImportedTable> tables;
  std::vector<ImportedLayer> layers;
  std::vector<ImportedHead> heads;
};

// True if there is a weight to start from.
bool has_parameters(const std::vector<ImportedLayer>& layers);

std::string job_text(const ImportedJob& job);  // TOML
// Writes a file of all parameters, with their layers' names before them.
void write_parameters(const std::string& file, const std::vector<ImportedLayer>& layers);

}  // namespace tessera::cli
