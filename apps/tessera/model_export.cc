// tessera model export: writes a model, or the vectors of a table, for other programs. ONNX files are written by the
// program tessera-onnx, which stands beside this one, so that no other command loads ONNX's libraries.
#include "model_export.h"

#include <filesystem>
#include <iostream>

#include "command.h"
#include "inspect_checkpoint.h"
#include "options.h"
#include "program.h"
#include "tessera/data.h"
#include "tessera/predictor.h"
#include "tessera/sdk/nearest.h"
#include "vectors_file.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct ExportArguments {
  std::string directory, onnx, tables, inputs, vectors, output;
  std::vector<std::string> heads, layers;
  bool overwrite = false;
};

void check_vectors(const ExportArguments& a, const po::variables_map& given) {
  for (const char* option : {"onnx", "tables", "inputs", "head", "layer"}) {
    if (given.contains(option) && !given[option].defaulted())
      throw UsageError(str_cat("--", option, " is of ONNX files, and --vectors writes none"));
  }
  if (a.directory.empty() || a.vectors.empty() || a.output.empty())
    throw UsageError("a table and a file are needed: tessera model export DIR --vectors TABLE --output FILE");
  if (!is_vectors_file(a.output)) throw UsageError("--output " + a.output + ": must end in .npy, .fvecs or .csv");
  if (!a.overwrite && std::filesystem::exists(a.output))
    throw UsageError(a.output + " exists: --overwrite replaces it");
}

bool parse_export_arguments(const std::vector<std::string>& args, ExportArguments* out) {
  Options options("model export", "DIR --onnx FILE [OPTIONS]\nDIR --vectors TABLE --output FILE",
                  "Writes a packed model, or a checkpoint of tessera train, as an ONNX file, which onnxruntime and "
                  "other runtimes load. Its inputs are numbers of rows: docs/models.md describes them. With --vectors, "
                  "writes the rows of a table.");
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
  add("vectors", po::value(&out->vectors)->value_name("TABLE"),
      "write the rows of this table instead, and the texts of its vocabulary beside them");
  add("output", po::value(&out->output)->value_name("FILE"),
      "new file for --vectors: its name ends in .npy, .fvecs or .csv");
  add("overwrite", po::bool_switch(&out->overwrite), "replace FILE if it exists");
  options.argument("directory", po::value(&out->directory));
  const auto given = parse_options(args, options);
  if (!given) return false;
  if (!out->vectors.empty() || !out->output.empty()) return check_vectors(*out, *given), true;
  if (out->directory.empty() || out->onnx.empty())
    throw UsageError(
        "a model and a file are needed: tessera model export DIR --onnx FILE, or DIR --vectors TABLE --output FILE");
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

// The text of each row that has one: of a vocabulary, or the id of a row that has its own; empty: the row's number.
std::vector<std::string> ids_of(const InferenceModel& model, const EmbeddingBagConfig& table) {
  std::vector<std::string> out;
  if (table.remapping) {
    const Tensor& keys = table.remapping->keys();
    if (!keys.defined())
      fail(Code::kUnimplemented, "table \"", table.name, "\" has been pruned, so its rows have no ids of their own");
    for (int64_t r = 0; r < keys.numel(); ++r) out.push_back(std::to_string(keys.data<int64_t>()[r]));
    return out;
  }
  if (model.description.encoding.empty()) return out;
  std::optional<std::vector<std::string>> words = ColumnEncoding(model.description.encoding).words(table.name);
  if (words) words->insert(words->begin(), "");  // row 0 is of all other texts
  return words ? *words : out;
}

int export_vectors(const ExportArguments& a) {
  InferenceModel model =
      is_checkpoint(a.directory) ? open_float_model(a.directory).model : open_packed_model(a.directory);
  std::vector<std::string> names;
  for (const QuantizedTable& table : model.tables) {
    const EmbeddingBagConfig& config = table.config;
    names.push_back(config.name);
    if (config.name != a.vectors) continue;
    const std::vector<std::string> ids = ids_of(model, config);
    // Rows that no text has are spare ones, which a vocabulary of other files may use.
    const int64_t rows = ids.empty() ? config.num_embeddings : std::ssize(ids);
    const Tensor written = slice_rows(table, {0, rows, 0, config.embedding_dim});
    write_vectors_file(a.output, dequantize_rows(written, config.row_format.value(), config.embedding_dim), ids);
    std::cout << a.output << ": " << rows << " rows of " << config.embedding_dim << " values\n";
    return 0;
  }
  for (const LayerSpec& layer : model.graph.layers) {
    if (layer.name == a.vectors)
      fail(Code::kInvalidArgument, "--vectors ", a.vectors,
           ": a layer's vectors depend on its inputs: tessera predict ", "--model ", a.directory,
           " --data ITEMS --vectors ", a.vectors, " --output ", a.output);
  }
  fail(Code::kInvalidArgument, "--vectors: ", sdk::unknown_name("table", a.vectors, names), " of this model");
}

}  // namespace

int export_command(const std::vector<std::string>& args) {
  ExportArguments a;
  if (!parse_export_arguments(args, &a)) return 0;
  if (!a.vectors.empty()) return export_vectors(a);
  std::vector<std::string> words = {"export", a.directory, a.onnx, a.tables, a.inputs};
  for (const std::string& name : a.heads) words.push_back("head=" + name);
  for (const std::string& name : a.layers) words.push_back("layer=" + name);
  become("tessera-onnx", words, "the package tessera-onnx has it, and a build where libonnx-dev is installed");
}

}  // namespace tessera::cli
