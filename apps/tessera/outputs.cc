#include "outputs.h"

#include <fnmatch.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "command.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

// True for files that readers take from a directory.
bool is_data(const fs::path& file) {
  constexpr std::array kEndings = {".tsv",   ".csv",     ".txt",  ".gz",   ".zst", ".parquet",
                                   ".arrow", ".feather", ".data", ".item", ".user"};
  return file.filename() == "meta.json" ||
         std::find(kEndings.begin(), kEndings.end(), file.extension().string()) != kEndings.end();
}

// True for files that commands write next to others, again and again.
bool is_report(const fs::path& file) {
  constexpr std::array kEndings = {".json", ".jsonl", ".html", ".svg", ".md", ".log"};
  return std::find(kEndings.begin(), kEndings.end(), file.extension().string()) != kEndings.end();
}

bool same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored) || fs::weakly_canonical(a, ignored) == fs::weakly_canonical(b, ignored);
}

bool lies_in(const fs::path& file, const std::string& folder) {
  std::error_code ignored;
  const fs::path inside = fs::weakly_canonical(file, ignored).lexically_relative(fs::weakly_canonical(folder, ignored));
  return !inside.empty() && *inside.begin() != "..";
}

// True if `file` is one of the files of an input, or would become one. An input is a file, a directory of files or a
// pattern.
bool is_of(const fs::path& file, const std::string& input) {
  std::error_code ignored;
  if (fs::is_directory(input, ignored))
    return lies_in(file, input) && (is_data(file) || (!is_report(file) && fs::exists(file, ignored)));
  if (same(file, input)) return true;
  if (input.find_first_of("*?[") == std::string::npos) return false;
  if (fnmatch(input.c_str(), file.c_str(), FNM_PATHNAME) == 0) return true;
  glob_t found{};
  bool one = false;
  if (glob(input.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) one = one || same(file, found.gl_pathv[i]);
  }
  globfree(&found);
  return one;
}

void refuse(const OutputFile& output, const std::string& input) {
  throw UsageError(str_cat(output.option, " ", output.path, " would replace ", input,
                           ", which this command reads: name another file"));
}

void check_output(const OutputFile& output, const InputFiles& inputs) {
  const fs::path path(output.path), folder = path.parent_path();
  std::error_code ignored;
  if (!folder.empty() && !fs::is_directory(folder, ignored))
    fail(Code::kNotFound, output.option, ": there is no directory ", folder.string());
  if (fs::is_directory(path, ignored)) throw UsageError(str_cat(output.option, " ", output.path, " is a directory"));
  const fs::path real = fs::weakly_canonical(path, ignored);
  for (const std::string& input : inputs.files) {
    if (!input.empty() && is_of(real, input))
      refuse(output, same(path, input) ? input : str_cat("or be a file of ", input));
  }
  for (const std::string& input : inputs.folders) {
    if (!input.empty() && same(real.parent_path(), input)) refuse(output, "or be a file of " + input);
  }
}

}  // namespace

void check_outputs(const std::vector<OutputFile>& outputs, const InputFiles& inputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].path.empty()) continue;
    check_output(outputs[i], inputs);
    for (size_t k = 0; k < i; ++k) {
      if (!outputs[k].path.empty() && same(outputs[i].path, outputs[k].path))
        throw UsageError(str_cat(outputs[k].option, " and ", outputs[i].option, " are both ", outputs[i].path));
    }
  }
}

}  // namespace tessera::cli
