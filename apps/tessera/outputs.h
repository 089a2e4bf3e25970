// Checks a command's output files before it works for hours, or overwrites something it was to read.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct OutputFile {
  std::string option;  // option that names the file, such as "--output"
  std::string path;    // empty: no file is written
};

// The inputs of a command. Empty paths are ignored.
struct InputFiles {
  // files, folders or patterns of data; no output may become one of their files, at any depth
  std::vector<std::string> files;
  std::vector<std::string> folders;  // folders whose every file is an input
};

// Throws UsageError if an output is one of the inputs, by whatever name or link, or if two outputs are the same file.
// Throws kNotFound if an output's folder does not exist.
void check_outputs(const std::vector<OutputFile>& outputs, const InputFiles& inputs);

}  // namespace tessera::cli
