// Files that a command writes: looked at before it works for hours, or replaces what it was to read.
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct OutputFile {
  std::string option;  // "--output"
  std::string path;    // empty: not written
};

// What a command reads. Empty paths count for nothing.
struct InputFiles {
  std::vector<std::string> files;    // or folders or patterns of data: nothing becomes one of their files, at any depth
  std::vector<std::string> folders;  // of which every file is one
};

// UsageError: an output is one of the inputs, by whatever name or link, or two outputs are one file. kNotFound: there
// is no folder for it.
void check_outputs(const std::vector<OutputFile>& outputs, const InputFiles& inputs);

}  // namespace tessera::cli
