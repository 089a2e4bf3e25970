// tessera-onnx MODEL FILE inside|beside|input [HEAD...]: what `tessera model export` starts.
#include <algorithm>
#include <iostream>

#include "inspect_checkpoint.h"
#include "modules/graph_wiring.h"
#include "onnx/export_model.h"
#include "tessera/sdk/nearest.h"

namespace {

using namespace tessera;
using namespace tessera::cli;

InferenceModel open_model(const std::string& path) {
  if (!is_checkpoint(path)) return open_packed_model(path);
  FloatModel model = open_float_model(path);
  for (const std::string& assumption : model.assumptions) std::cerr << assumption << '\n';
  return std::move(model.model);
}

void keep_named_heads(InferenceModel& model, const std::vector<std::string>& names) {
  std::vector<HeadSpec> kept;
  std::vector<std::string> known;
  for (const HeadSpec& h : model.graph.heads) known.push_back(h.name);
  for (const std::string& name : names) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end())
      fail(Code::kInvalidArgument, "--head: ", sdk::unknown_name("head", name, known), " of this model");
    kept.push_back(model.graph.heads[static_cast<size_t>(at - known.begin())]);
  }
  if (!kept.empty()) keep_heads(model.graph, kept);
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

int run(const std::string& path, const std::string& file, const std::string& place,
        const std::vector<std::string>& heads) {
  InferenceModel model = open_model(path);
  keep_named_heads(model, heads);
  const TablePlace tables = place == "beside"  ? TablePlace::kBeside
                            : place == "input" ? TablePlace::kOutside
                                               : TablePlace::kInside;
  const Runtime runtime;
  const ExportReport report = export_model(runtime, std::move(model), file, tables);
  std::cout << file << ": " << (report.bytes + 512 * 1024) / (1024 * 1024) << " MiB\n  inputs  " << list(report.inputs)
            << "\n  outputs " << list(report.outputs) << '\n';
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  if (args.size() < 3) {
    std::cerr << "tessera-onnx is started by tessera model export: see tessera model export --help\n";
    return 2;
  }
  try {
    return run(args[0], args[1], args[2], {args.begin() + 3, args.end()});
  } catch (const Error& e) {
    std::cerr << "tessera model: " << e.what() << '\n';
    return e.code() == Code::kUnavailable || e.code() == Code::kInternal ? 1 : 2;
  } catch (const std::exception& e) {
    std::cerr << "tessera model: " << e.what() << '\n';
    return 1;
  }
}
