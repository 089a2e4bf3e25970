// Writes a model as an ONNX file.
#pragma once

#include <string>
#include <vector>

#include "onnx/features.h"
#include "tessera/predictor.h"
#include "tessera/runtime.h"

namespace tessera::cli {

struct ExportReport {
  std::vector<std::string> inputs, outputs;
  std::vector<std::string> notes;  // ColumnWriter::notes()
  int64_t bytes = 0;               // of all files
};

struct ExportOptions {
  TablePlace tables = TablePlace::kInside;
  bool columns = false;  // inputs are columns of the data; else rows of tables and dense values
};

// `file` and, with TablePlace::kBeside, FILE.data are complete or do not exist. kUnimplemented names a layer, an option
// or a table that ONNX cannot express here.
ExportReport export_model(const Runtime& runtime, InferenceModel model, const std::string& file,
                          const ExportOptions& options);

}  // namespace tessera::cli
