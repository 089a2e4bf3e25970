// Reads an ONNX file of dense layers as a job.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct ImportOptions {
  std::string dense;    // the input that is the data's dense values; "": "dense", or the only one; "none": no input
  bool logits = false;  // outputs without a sigmoid are logits of binary_cross_entropy
};

struct ImportReport {
  int nodes = 0;  // of the file
  std::vector<std::string> inputs, layers, heads;
  std::vector<std::string> notes;
  bool weights = false;  // the layers have parameters, which are in kImportedWeights
};

// Names of the files in the new directory.
inline constexpr const char* kImportedJob = "job.toml";
inline constexpr const char* kImportedWeights = "dense.safetensors";

// Writes a job with the file's layers, and their parameters, into a new directory. kUnimplemented: the first operator
// that no layer computes. kDataLoss: `file` is no ONNX file. kInvalidArgument: an input or an output that a job cannot
// have. kAlreadyExists: the directory.
ImportReport import_model(const std::string& file, const std::string& directory, const ImportOptions& options);

}  // namespace tessera::cli
