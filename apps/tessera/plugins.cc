// tessera plugins: lists every candidate found, with its state and the reason.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>

#include "command.h"
#include "layers.h"
#include "options.h"
#include "plugin_watch.h"
#include "tessera/config.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

Options described() {
  Options out("plugins", "[OPTIONS]");
  out.add_options()("json", "print JSON instead of text")(
      "verbose,v",
      "print a line for each component, with version, ABI, state and file, and the folders that were "
      "searched")("path", po::value<std::vector<std::string>>()->value_name("DIR")->composing(),
                  "search this directory (absolute) before the others; may be repeated")(
      "config", po::value<std::string>()->value_name("FILE"),
      "also search the directories of this job's [plugins], and check what it requires")(
      "explain", po::value<std::string>()->value_name("ID"),
      "describe the components with this id: what they are, their files, and why they are used or not")(
      "only-path", "search only the directories of --path and --config")(
      "no-open", "list what the files say about themselves, without running their code");
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

// "sharder" for "tessera.sharder/1".
std::string short_kind(const std::string& kind) {
  const std::string name = kind.substr(0, kind.find('/'));
  return name.starts_with("tessera.") ? name.substr(8) : name;
}

// Lists the components that can be used, by kind, and then those that cannot, each with the reason.
std::string usable_by_kind(const LoadReport& report) {
  constexpr size_t kIndent = 14;
  std::map<std::string, std::vector<std::string>> ids, others;  // by kind; by the reason why they cannot be used
  for (const LoadEntry& e : report.entries) {
    const bool usable = e.state != LoadEntry::State::kUnusable && e.state != LoadEntry::State::kRejected;
    const std::string name = e.id.empty() ? std::filesystem::path(e.path).filename().string() : e.id;
    std::vector<std::string>& names = usable ? ids[short_kind(e.kind)] : others[e.reason];
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::string out;
  for (const auto& [kind, names] : ids) {
    const std::string head = kind + std::string(kind.size() < kIndent ? kIndent - kind.size() : 1, ' ');
    out += wrapped(sdk::joined(names), head, std::string(kIndent, ' '));
  }
  if (out.empty()) out = "no plugin was found; --verbose names the folders that were searched\n";
  if (!others.empty()) out += "\nnot usable here:\n";
  for (const auto& [reason, names] : others)
    out += wrapped(sdk::joined(names), "  ", "  ") + wrapped(reason, "      ", "      ");
  return out;
}

void print(const LoadReport& report, const std::vector<LayersOfDevice>& layers, bool verbose) {
  std::cout << (verbose ? report.text() : usable_by_kind(report));
  for (const LayersOfDevice& l : layers) {
    for (const std::string& line : replaced_layers(l.layers))
      std::cout << (std::string_view(l.device) == "cpu" ? "" : str_cat("on ", l.device, ", ")) << line << '\n';
  }
  std::cout << (verbose ? "" : "\n--explain ID says more about one, --verbose has versions, files and folders.\n");
}

void print_json(const LoadReport& report, const std::vector<LayersOfDevice>& layers) {
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
    std::cout << str_cat("  contract  tessera/abi/", header, ".h; check it with tessera verify ", e.path, ' ', id,
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
  const std::vector<LayersOfDevice> layers =
      given.contains("no-open") ? std::vector<LayersOfDevice>() : all_layers(runtime);
  if (given.contains("json"))
    print_json(report, layers);
  else
    print(report, layers, given.contains("verbose"));
  check_required(report, config.require);
  return 0;
}

}  // namespace tessera::cli
