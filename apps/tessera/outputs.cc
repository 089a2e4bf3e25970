#include "outputs.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

bool is_data(const fs::path& file) {
  constexpr std::array kEndings = {".tsv", ".gz", ".data", ".item", ".user"};
  return file.filename() == "meta.json" ||
         std::find(kEndings.begin(), kEndings.end(), file.extension().string()) != kEndings.end();
}

bool same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) || fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

void refuse(const OutputFile& output, const std::string& input) {
  throw UsageError(
      cat(output.option, " ", output.path, " would replace ", input, ", which this command reads: name another file"));
}

void check_output(const OutputFile& output, const InputFiles& inputs) {
  const fs::path path(output.path), folder = path.parent_path();
  std::error_code ignored;
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    fail(Code::kNotFound, output.option, ": there is no directory ", folder.string());
  if (fs::is_directory(path, ignored)) throw UsageError(cat(output.option, " ", output.path, " is a directory"));
  const fs::path real = fs::weakly_canonical(path, ignored);
  for (const std::string& input : inputs.files) {
    if (input.empty()) continue;
    const bool in_folder = fs::is_directory(input, ignored) && is_data(real) && fs::exists(real, ignored) &&
                           same(real.parent_path(), input);
    if (in_folder || same(path, input)) refuse(output, in_folder ? real.string() : input);
  }
  for (const std::string& input : inputs.folders) {
    if (!input.empty() && same(real.parent_path(), input)) refuse(output, "a file of " + input);
  }
}

}  // namespace

void check_outputs(const std::vector<OutputFile>& outputs, const InputFiles& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].path.empty()) continue;
    check_output(outputs[i], inputs);
    for (size_t k = 0; k < i; ++k) {
      if (!outputs[k].path.empty() && same(outputs[i].path, outputs[k].path))
        throw UsageError(cat(outputs[k].option, " and ", outputs[i].option, " are both ", outputs[i].path));
    }
  }
}

}  // namespace tessera::cli
