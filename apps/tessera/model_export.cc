// tessera model export: writes a model for other runtimes. The work is done by the program tessera-onnx, which stands
// beside this one, so that no other command loads ONNX's libraries.
#include "model_export.h"

#include <filesystem>

#include "command.h"
#include "options.h"
#include "program.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct ExportArguments {
  std::string directory, onnx, tables, inputs;
  std::vector<std::string> heads, layers;
  bool overwrite = false;
};

bool parse_export_arguments(const std::vector<std::string>& args, ExportArguments* out) {
  Options options("model export", "DIR --onnx FILE [OPTIONS]",
                  "Writes a packed model, or a checkpoint of tessera train, as an ONNX file, which onnxruntime and "
                  "other runtimes load. Its inputs are numbers of rows: docs/models.md describes them.");
  auto add = options.add_options();
  add("onnx", po::value(&out->onnx)->value_name("FILE"), "new ONNX file");
  add("tables", po::value(&out->tables)->value_name("PLACE")->default_value("inside"),
      "where the tables' rows are: inside the file; beside it, in FILE.data, for more than 2 GB; or input: nowhere, "
      "and the looked-up rows are inputs");
  add("inputs", po::value(&out->inputs)->value_name("KIND")->default_value("rows"),
      "rows: numbers of the tables' rows, and dense values as the layers see them; columns: what the data's columns "
      "have, texts and numbers");
  add("head", po::value(&out->heads)->value_name("NAME")->composing(),
      "write only this head; may be repeated (default: all)");
  add("layer", po::value(&out->layers)->value_name("NAME")->composing(),
      "write the values of this layer instead of heads, such as a tower's vector; may be repeated");
  add("overwrite", po::bool_switch(&out->overwrite), "replace FILE if it exists");
  options.argument("directory", po::value(&out->directory));
  if (!parse_options(args, options)) return false;
  if (out->directory.empty() || out->onnx.empty())
    throw UsageError("a model and a file are needed: tessera model export DIR --onnx FILE");
  if (out->inputs != "rows" && out->inputs != "columns")
    throw UsageError(str_cat("--inputs ", out->inputs, ": must be rows or columns"));
  if (out->tables == "input" && out->inputs == "columns")
    throw UsageError("--inputs columns has no effect on --tables input, whose inputs are looked-up rows");
  if (!out->heads.empty() && !out->layers.empty()) throw UsageError("--head and --layer exclude each other");
  if (out->tables != "inside" && out->tables != "beside" && out->tables != "input")
    throw UsageError(str_cat("--tables ", out->tables, ": must be inside, beside or input"));
  if (!out->overwrite && std::filesystem::exists(out->onnx))
    throw UsageError(out->onnx + " exists: --overwrite replaces it");
  return true;
}

}  // namespace

int export_command(const std::vector<std::string>& args) {
  ExportArguments a;
  if (!parse_export_arguments(args, &a)) return 0;
  std::vector<std::string> words = {a.directory, a.onnx, a.tables, a.inputs};
  for (const std::string& name : a.heads) words.push_back("head=" + name);
  for (const std::string& name : a.layers) words.push_back("layer=" + name);
  become("tessera-onnx", words, "the package tessera-onnx has it, and a build where libonnx-dev is installed");
}

}  // namespace tessera::cli
