// tessera model import: starts tessera-onnx, which reads ONNX files.
#include "model_import.h"

#include "command.h"
#include "options.h"
#include "program.h"

namespace tessera::cli {

int import_command(const std::vector<std::string>& args) {
  namespace po = boost::program_options;
  std::string onnx, save, dense;
  bool logits = false;
  Options options(
      "model import", "--onnx FILE --save DIR [OPTIONS]",
      "Reads an ONNX file of dense layers, whose inputs are rows or sequences of them, and writes a job with these "
      "layers and a file of their weights, which tessera train --start takes. The first operator that no "
      "layer computes is named. docs/models.md has the operators.");
  auto add = options.add_options();
  add("onnx", po::value(&onnx)->value_name("FILE"), "ONNX file");
  add("save", po::value(&save)->value_name("DIR"), "new directory for job.toml and dense.safetensors");
  add("dense", po::value(&dense)->value_name("INPUT"),
      "the input that is the data's dense values; the others are tables' rows (default: the one called dense, or the "
      "only one; none: all are tables' rows)");
  add("logits", po::bool_switch(&logits),
      "outputs are logits of probabilities, even if the file does not end in a sigmoid");
  const auto given = parse_options(args, options);
  if (!given) return 0;
  if (onnx.empty() || save.empty())
    throw UsageError("a file and a directory are needed: tessera model import --onnx FILE --save DIR");
  become("tessera-onnx", {"import", onnx, save, dense, logits ? "logits" : "values"},
         "the package tessera-onnx has it, and a build where libonnx-dev is installed");
}

}  // namespace tessera::cli
