// tessera plugins: lists every candidate found, with its state and the reason.
#include <algorithm>
#include <iostream>

#include "command.h"
#include "layers.h"
#include "options.h"
#include "plugin_watch.h"
#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

Options described() {
  Options out("plugins", "[OPTIONS]");
  out.add_options()("json", "print JSON instead of a table")(
      "path", po::value<std::vector<std::string>>()->value_name("DIR")->composing(),
      "search this directory (absolute) before the others; may be repeated")(
      "config", po::value<std::string>()->value_name("FILE"),
      "also search the directories of this job's [plugins], and check what it requires")(
      "explain", po::value<std::string>()->value_name("ID"),
      "say about the components with this id what they are, where they are, and why they are used or not")(
      "only-path", "search no directories but those of --path and --config")(
      "no-open", "list what the files say about themselves, without running any code of theirs");
  return out;
}

// Called after the report was printed, which gives the reasons.
void check_required(const LoadReport& report, const std::vector<std::string>& required) {
  for (const std::string& id : required) {
    const auto usable = [&](const LoadEntry& e) { return e.id == id && e.state == LoadEntry::State::kAvailable; };
    if (std::none_of(report.entries.begin(), report.entries.end(), usable)) {
      fail(Code::kFailedPrecondition, "the config requires the plugin \"", id, "\", which is not available");
    }
  }
}

struct LayersOfDevice {
  const char* device;
  std::vector<LayerChoice> layers;
};

// The component that computes each layer. Layers are found by name; the highest priority wins (abi/module.h).
std::vector<LayersOfDevice> all_layers(const Runtime& runtime) {
  std::vector<LayersOfDevice> out;
  for (const auto& [name, type] : {std::pair{"cpu", int32_t{kDLCPU}}, {"cuda", kDLCUDA}, {"hip", kDLROCM}}) {
    out.push_back({name, layer_choices(runtime, type)});
    if (out.back().layers.empty()) out.pop_back();
  }
  return out;
}

void print(const LoadReport& report, const std::vector<LayersOfDevice>& layers, bool as_json) {
  if (!as_json) {
    std::cout << report.text();
    for (const LayersOfDevice& l : layers)
      std::cout << "dense layers on " << l.device << ": " << layers_text(l.layers) << '\n';
    return;
  }
  auto json = nlohmann::ordered_json::parse(report.json());
  json["layers"] = nlohmann::ordered_json::object();
  for (const LayersOfDevice& l : layers) json["layers"][l.device] = layers_json(l.layers);
  std::cout << json.dump(2) << '\n';
}

std::string whole_id(const tsr_component& c) { return str_cat('"', c.id, "\" (priority ", c.priority, ")"); }

// Prints a usable component's description of itself, and which component of its kind "auto" means.
void explain_usable(const Runtime& runtime, const LoadEntry& e) {
  try {
    const tsr_component& c = runtime.component(e.kind, e.id);
    std::cout << "  about     " << c.about << "\n  priority  " << c.priority;
    const tsr_component& chosen = runtime.component(e.kind, "auto");
    std::cout << (&chosen == &c ? ": it is what \"auto\" means" : ": \"auto\" means " + whole_id(chosen)) << '\n';
  } catch (const Error& error) {
    std::cout << "\n  cannot be used: " << error.what() << '\n';
  }
}

void explain(const Runtime& runtime, const LoadReport& report, const std::string& id) {
  bool found = false;
  for (const LoadEntry& e : report.entries) {
    if (e.id != id) continue;
    found = true;
    const std::string header = e.kind.substr(0, e.kind.find('/')).substr(e.kind.find('.') + 1);
    std::cout << str_cat(id, ", ", e.kind, ", version ", e.version, "\n  file      ", e.path, "\n  ABI       ", e.abi,
                         "\n  state     ", to_string(e.state), e.reason.empty() ? "" : ": " + e.reason, "\n");
    if (e.state == LoadEntry::State::kAvailable) explain_usable(runtime, e);
    std::cout << str_cat("  contract  tessera/abi/", header, ".h; does it keep to it? tessera verify ", e.path, ' ', id,
                         "\n");
  }
  if (!found)
    fail(Code::kNotFound, "no plugin has a component \"", id, "\": tessera plugins lists those that were found");
}

}  // namespace

int plugins_command(const std::vector<std::string>& args) {
  Options options = described();
  const auto found = parse_options(args, options);
  if (!found) return 0;
  const po::variables_map& given = *found;
  RuntimeOptions runtime_options;
  if (given.contains("path")) runtime_options.plugin_path = given["path"].as<std::vector<std::string>>();
  PluginsConfig config;
  if (given.contains("config")) config = load_config(given["config"].as<std::string>()).plugins;
  runtime_options.plugin_path.insert(runtime_options.plugin_path.end(), config.path.begin(), config.path.end());
  runtime_options.default_path = !given.contains("only-path");
  const PluginWatch watch;
  const Runtime runtime(runtime_options);
  if (!given.contains("no-open")) runtime.open_all();
  const LoadReport report = runtime.report();
  if (given.contains("explain")) {
    explain(runtime, report, given["explain"].as<std::string>());
    return 0;
  }
  print(report, given.contains("no-open") ? std::vector<LayersOfDevice>() : all_layers(runtime),
        given.contains("json"));
  check_required(report, config.require);
  return 0;
}

}  // namespace tessera::cli
