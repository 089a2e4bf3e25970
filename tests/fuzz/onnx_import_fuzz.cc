// ONNX files that `tessera model import` reads: each is refused with a sentence, or becomes a job that can be read.
#include <filesystem>

#include "config/test_directory.h"
#include "fuzz.h"
#include "onnx/import_model.h"
#include "tessera/config.h"

namespace tessera::fuzz {

void fuzz_onnx_import(Input input) {
  static const test::TestDirectory directory;
  const ScratchFile file(input);
  const std::string out = directory.file("job");
  std::filesystem::remove_all(out);
  // A file has many bytes that say nothing about its graph, so the options follow from how many there are.
  const cli::ImportOptions options{.dense = input.size() % 3 == 0 ? "none" : "", .logits = input.size() % 2 == 0};
  if (!taken([&] { cli::import_model(file.path(), out, options); })) {
    require(!std::filesystem::exists(out), "a refusal leaves no directory");
    return;
  }
  require(taken([&] { load_config(out + '/' + cli::kImportedJob, {}); }), "the job of an import can be read");
}

}  // namespace tessera::fuzz
