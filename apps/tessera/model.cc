// tessera model inspect: describes a packed model or a checkpoint, and checks it. tessera model new: writes jobs to
// start from. tessera model export and import have files of their own.
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "command.h"
#include "inference/manifest.h"
#include "inspect_checkpoint.h"
#include "job_config.h"
#include "model_export.h"
#include "model_import.h"
#include "model_presets.h"
#include "modules/row_figures.h"
#include "options.h"
#include "tessera/abi/draft/on_demand.h"
#include "tessera/predictor.h"
#include "tessera/sdk/nearest.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;
using json = nlohmann::ordered_json;

struct ModelArguments {
  std::string action, directory;
  bool verify = false, as_json = false;
};

template <class T>
std::string list(const std::vector<T>& items) {
  std::string out;
  for (const T& item : items) out += str_cat(out.empty() ? "" : ", ", item);
  return out;
}

void check_action(const std::string& action) {
  constexpr const char* kActions =
      "tessera model inspect DIR, export DIR --onnx FILE, import --onnx FILE --save DIR, importance DIR --data FILE "
      "and new NAME";
  if (action != "inspect" && action != "new")
    throw UsageError(action.empty() ? str_cat("an action is needed: there are ", kActions)
                                    : str_cat('"', action, "\" is not known; there are ", kActions));
}

bool parse_model_arguments(const std::vector<std::string>& args, ModelArguments* out) {
  Options options(
      "model",
      "inspect DIR [OPTIONS]\nexport DIR --onnx FILE [OPTIONS]\nimport --onnx FILE --save DIR [OPTIONS]\n"
      "importance DIR --data FILE [OPTIONS]\nnew NAME",
      str_cat(
          "inspect describes a packed model or a checkpoint. export writes it as ONNX, and import reads the layers of "
          "an ONNX file: see tessera model export --help and import --help. importance shuffles one column after the "
          "other, as tessera predict --importance 5 does. new prints an example job, whose layers you can change. "
          "NAME is one of ",
          list(preset_names()), '.'));
  auto add = options.add_options();
  add("verify", po::bool_switch(&out->verify), "read all files and compare the checksums");
  add("json", po::bool_switch(&out->as_json), "print one JSON object");
  options.argument("action", po::value(&out->action));
  options.argument("directory", po::value(&out->directory));
  // An action with a misspelt name is named, not the options that it has.
  if (!args.empty() && !args[0].starts_with('-')) check_action(args[0]);
  if (!parse_options(args, options)) return false;
  check_action(out->action);
  if (out->directory.empty())
    throw UsageError(
        out->action == "new"
            ? str_cat("the name of a model is needed: tessera model new NAME, with one of ", list(preset_names()))
            : std::string("the model's directory is needed: tessera model inspect DIR"));
  return true;
}

// A DLRM is described by the sizes of its MLPs, other models by their layers.
bool is_dlrm(const InferenceModel& model) { return !model.dlrm.bottom_mlp.empty(); }

const char* policy(BoundsCheckMode mode) {
  if (mode == BoundsCheckMode::kFatal) return "refused";
  return mode == BoundsCheckMode::kIgnore ? "left out" : "left out, counted, the first one logged";
}

void print_text(const InferenceModel& model) {
  const ModelDescription& d = model.description;
  std::cout << str_cat(d.name, ", version ", d.version, ", ", d.type, '\n');
  const std::string dense = str_cat(d.dense_inputs, " dense inputs, ");
  if (is_dlrm(model)) {
    std::cout << wrapped(
        str_cat(dense, "bottom MLP ", list(model.dlrm.bottom_mlp), ", top MLP ", list(model.dlrm.top_mlp)), "  ",
        "    ");
  } else {
    std::vector<std::string> layers, heads;
    for (const LayerSpec& l : model.graph.layers)
      layers.push_back(str_cat(l.name, " = ", l.type, '(', list(l.inputs), ')'));
    for (const HeadSpec& h : model.graph.heads)
      heads.push_back(str_cat(h.name, " = ", h.loss, '(', h.input, ", ", h.label, ')'));
    std::cout << wrapped(str_cat(dense, "layers ", list(layers)), "  ", "    ")
              << wrapped("heads " + list(heads), "  ", "    ");
    std::vector<std::string> drawn;
    for (const DrawnInput& d : model.graph.drawn) drawn.push_back(d.feature);
    if (!drawn.empty()) std::cout << wrapped(str_cat("ids drawn in training, not read: ", list(drawn)), "  ", "    ");
  }
  std::cout << wrapped(str_cat("ids out of range are ", policy(d.bounds_check), "; weights are ",
                               d.is_weighted ? "allowed" : "not allowed",
                               model.int8_weights.empty() ? "" : "; dense layers are in int8"),
                       "  ", "    ")
            << '\n';
  size_t widest = 8;
  for (const ModelTable& t : d.tables) widest = std::max(widest, t.name.size());
  const auto row = [&](const auto& name, const auto& rows, const auto& dim, const char* format, const char* pooling,
                       const auto& size) {
    std::ostringstream out;
    out << std::left << std::setw(static_cast<int>(widest)) << name << std::right << std::setw(13) << rows
        << std::setw(6) << dim << ' ' << std::left << std::setw(7) << format << std::setw(8) << pooling << std::right
        << std::setw(14) << size;
    return out.str();
  };
  std::cout << row("table", "rows", "dim", "format", "pooling", "bytes") << "  features\n";
  int64_t bytes = 0;
  for (const ModelTable& t : d.tables) {
    const std::string figures = row(t.name, t.rows, t.dim, sdk::to_string(t.format), to_string(t.pooling), t.bytes);
    std::cout << wrapped(list(t.features), figures + "  ", std::string(figures.size() + 2, ' '));
    bytes += t.bytes + t.index_bytes;
  }
  std::cout << row("in all", "", "", "", "", bytes) << '\n';
  for (size_t i = 0; i < d.tables.size(); ++i) {
    const ModelTable& t = d.tables[i];
    if (t.index_bytes > 0) {
      const bool shared = model.tables[i].config.remapping->row(TSR_SHARED_ROW_ID) >= 0;
      std::cout << wrapped(
          str_cat(t.name, ": an index of ", t.index_bytes, " bytes finds the rows of its ids; other ids ",
                  shared ? "share one row" : "read as zeros"),
          "  ", "    ");
    }
    if (const auto& figures = model.tables[i].figures)
      std::cout << wrapped(str_cat(t.name, ": ", in_words(*figures, t.rows)), "  ", "    ");
  }
}

json to_json(const InferenceModel& model) {
  const ModelDescription& d = model.description;
  json out = {{"name", d.name}, {"version", d.version}, {"type", d.type}, {"dense_inputs", d.dense_inputs}};
  if (is_dlrm(model)) {
    out.update({{"embedding_dim", model.dlrm.embedding_dim},
                {"bottom_mlp", model.dlrm.bottom_mlp},
                {"top_mlp", model.dlrm.top_mlp}});
  } else {
    out["layers"] = json::array();
    for (const LayerSpec& l : model.graph.layers)
      out["layers"].push_back({{"name", l.name}, {"type", l.type}, {"inputs", l.inputs}});
    out["heads"] = json::array();
    for (const HeadSpec& h : model.graph.heads)
      out["heads"].push_back({{"name", h.name}, {"input", h.input}, {"loss", h.loss}, {"label", h.label}});
  }
  out.update({{"is_weighted", d.is_weighted}, {"out_of_range", policy(d.bounds_check)}});
  if (!model.int8_weights.empty()) out["dense_precision"] = d.dense_precision;
  out["features"] = json::array();
  for (const ModelFeature& f : d.features)
    out["features"].push_back({{"name", f.name}, {"ids", f.ids}, {"tables", f.tables}});
  out["tables"] = json::array();
  for (size_t i = 0; i < d.tables.size(); ++i) {
    const ModelTable& t = d.tables[i];
    out["tables"].push_back({{"name", t.name},
                             {"rows", t.rows},
                             {"dim", t.dim},
                             {"format", sdk::to_string(t.format)},
                             {"pooling", to_string(t.pooling)},
                             {"features", t.features},
                             {"bytes", t.bytes}});
    if (t.index_bytes > 0) out["tables"].back().update({{"ids", t.ids}, {"index_bytes", t.index_bytes}});
    if (const auto& figures = model.tables[i].figures) out["tables"].back()["figures"] = to_json(*figures);
  }
  return out;
}

// Throws for a path that is neither a packed model nor a checkpoint.
void refuse_other(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::exists(fs::path(path) / inference::kManifestFile, ignored)) return;
  const char* const is = !fs::exists(path, ignored)        ? "is not there"
                         : fs::is_directory(path, ignored) ? "is a directory of something else"
                                                           : "is a file";
  throw UsageError(str_cat(path, ' ', is,
                           ": tessera model inspect takes the directory of a packed model (of tessera quantize, "
                           "with ",
                           inference::kManifestFile, ") or of checkpoints (of tessera train --save)"));
}

// The first lines of a preset's file: how to train it on a user's data, and on the generated data that it names.
std::string preset_header(const ModelPreset& preset) {
  const std::string name = preset.name;
  const std::string whole = str_cat("#   tessera model new ", name, " > ", name, ".toml\n#   tessera train --config ",
                                    name, ".toml --nproc 2\n");
  if (std::string_view(preset.text).find("\"c0\"") != std::string_view::npos)  // it names columns of its data
    return str_cat(
        "# This is a whole job on generated data:\n", whole,
        "# For your data, write your columns' names where `inputs` has c0, c1, ..., and put [model], the "
        "[[layer]]s and\n# [[head]]s into the job that `tessera data describe FILE > job.toml` writes.\n#\n");
  return str_cat(
      "# This trains on the columns of your own job:\n#   tessera data describe clicks.csv > job.toml\n",
      "#   tessera train --config job.toml --model ", name, " --nproc 2\n",
      "# To change its layers, put [model], the [[layer]]s and [[head]]s into that job. As it is, this trains "
      "on generated\n# data:\n",
      whole, "#\n");
}

int print_preset(const std::string& name) {
  const auto presets = model_presets();
  const auto found = std::find_if(presets.begin(), presets.end(), [&](const ModelPreset& p) { return name == p.name; });
  if (found == presets.end()) {
    throw UsageError(str_cat(sdk::unknown_name("model", name, preset_names()), " of ", list(preset_names())));
  }
  std::cout << preset_header(*found) << found->text;
  return 0;
}

}  // namespace

int model_command(const std::vector<std::string>& args) {
  if (!args.empty() && args[0] == "importance") {
    const bool asks = std::any_of(args.begin(), args.end(), [](const auto& w) { return w == "--help" || w == "-h"; });
    if (asks) return predict_command({"--help"});
    if (args.size() < 2 || args[1].starts_with("-"))
      throw UsageError("a model is needed: tessera model importance DIR --data FILE");
    std::vector<std::string> words = {"--model"};
    words.insert(words.end(), args.begin() + 1, args.end());
    const auto has = [&](const std::string& option) {
      return std::any_of(words.begin(), words.end(),
                         [&](const std::string& word) { return word == option || word.starts_with(option + "="); });
    };
    if (!has("--data") && !has("--config"))
      throw UsageError("data is needed: tessera model importance DIR --data FILE");
    if (!has("--importance")) words.insert(words.end(), {"--importance", "5"});
    return predict_command(words);
  }
  if (!args.empty() && args[0] == "export") return export_command({args.begin() + 1, args.end()});
  if (!args.empty() && args[0] == "import") return import_command({args.begin() + 1, args.end()});
  ModelArguments a;
  if (!parse_model_arguments(args, &a)) return 0;
  if (a.action == "new") return print_preset(a.directory);
  if (is_checkpoint(a.directory)) {
    inspect_checkpoint(a.directory, a.verify, a.as_json);
    return 0;
  }
  refuse_other(a.directory);
  const InferenceModel model = open_packed_model(a.directory);
  if (a.verify) verify_packed_model(a.directory);
  if (a.as_json) {
    json out = to_json(model);
    if (a.verify) out["verified"] = true;
    std::cout << out.dump(1) << '\n';
    return 0;
  }
  print_text(model);
  std::printf(a.verify ? "all checksums are right\n" : "sizes and headers are right; --verify reads all rows\n");
  return 0;
}

}  // namespace tessera::cli
