// Started by tessera model export and tessera model import:
//   tessera-onnx export MODEL FILE inside|beside|input rows|columns [head=NAME|layer=NAME...]
//   tessera-onnx import FILE DIR DENSE values|logits
#include <algorithm>
#include <iostream>

#include "inspect_checkpoint.h"
#include "onnx/export_model.h"
#include "onnx/import_model.h"
#include "program.h"
#include "tessera/layer_graph.h"
#include "tessera/sdk/nearest.h"
#include "wrapped.h"

namespace {

using namespace tessera;
using namespace tessera::cli;

InferenceModel open_model(const std::string& path) {
  if (!is_checkpoint(path)) return open_packed_model(path);
  FloatModel model = open_float_model(path);
  for (const std::string& assumption : model.assumptions) std::cerr << assumption << '\n';
  return std::move(model.model);
}

HeadSpec head_named(const ModelGraph& graph, const std::string& name) {
  std::vector<std::string> known;
  for (const HeadSpec& h : graph.heads) {
    if (h.name == name) return h;
    known.push_back(h.name);
  }
  fail(Code::kInvalidArgument, "--head: ", sdk::unknown_name("head", name, known), " of this model");
}

// A head whose value is a layer's.
HeadSpec head_of_layer(const ModelGraph& graph, const std::string& name) {
  std::vector<std::string> known;
  for (const LayerSpec& l : graph.layers) known.push_back(l.name);
  if (std::find(known.begin(), known.end(), name) == known.end())
    fail(Code::kInvalidArgument, "--layer: ", sdk::unknown_name("layer", name, known), " of this model");
  HeadSpec out;
  out.name = out.input = name;
  out.loss = kNoLoss;
  return out;
}

// Leaves the heads that words such as "head=click" and "layer=tower" name; no words: all heads.
void choose_heads(InferenceModel& model, const std::vector<std::string>& words) {
  std::vector<HeadSpec> kept;
  for (const std::string& word : words) {
    const std::string name = word.substr(word.find('=') + 1);
    kept.push_back(word.starts_with("head=") ? head_named(model.graph, name) : head_of_layer(model.graph, name));
  }
  if (!kept.empty()) keep_heads(model.graph, kept);
}

int run(const std::string& path, const std::string& file, const std::string& place, const std::string& inputs,
        const std::vector<std::string>& heads) {
  InferenceModel model = open_model(path);
  if (!model.int8_weights.empty())
    fail(Code::kUnimplemented, path, " has dense layers in int8, which an ONNX file cannot have yet: export the ",
         "checkpoint, or pack it without --dense int8");
  choose_heads(model, heads);
  ExportOptions options{.tables = place == "beside"  ? TablePlace::kBeside
                                  : place == "input" ? TablePlace::kOutside
                                                     : TablePlace::kInside,
                        .columns = inputs == "columns"};
  const Runtime runtime;
  const ExportReport report = export_model(runtime, std::move(model), file, options);
  std::cout << file << ": " << (report.bytes + (int64_t{1} << 19)) / (int64_t{1} << 20) << " MiB\n"
            << wrapped("inputs: " + sdk::joined(report.inputs), "  ", "    ")
            << wrapped("outputs: " + sdk::joined(report.outputs), "  ", "    ");
  for (const std::string& note : report.notes) std::cout << wrapped(note, "  ", "    ");
  return 0;
}

int run_import(const std::string& file, const std::string& directory, const ImportOptions& options) {
  const ImportReport report = import_model(file, directory, options);
  const std::string job = directory + '/' + kImportedJob;
  std::cout << str_cat(job, ": ", report.nodes, " nodes as ", report.layers.size(), " layers\n")
            << wrapped("inputs: " + sdk::joined(report.inputs), "  ", "    ")
            << wrapped("layers: " + sdk::joined(report.layers), "  ", "    ")
            << wrapped("heads: " + sdk::joined(report.heads), "  ", "    ");
  for (const std::string& note : report.notes) std::cout << wrapped(note, "  ", "    ");
  const std::string start = report.weights ? str_cat(" \\\n  --start ", directory, '/', kImportedWeights) : "";
  std::cout << str_cat("tessera train --config ", job, start, '\n');
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  const std::string action = args.empty() ? "" : args[0];
  if (action == "import" && args.size() == 5) {
    return status_of("tessera model",
                     [&] { return run_import(args[1], args[2], {.dense = args[3], .logits = args[4] == "logits"}); });
  }
  if (action != "export" || args.size() < 5) {
    std::cerr << "tessera-onnx is started by tessera model export and import: see tessera model --help\n";
    return 2;
  }
  return status_of("tessera model", [&] {
    return run(args[1], args[2], args[3], args[4], {args.begin() + 5, args.end()});
  });
}
