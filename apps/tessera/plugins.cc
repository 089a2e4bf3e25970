// tessera plugins: every candidate found, with its state and the reason.
#include <algorithm>
#include <iostream>

#include "command.h"
#include "options.h"
#include "plugin_watch.h"
#include "tessera/config.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

po::options_description described() {
  po::options_description out("usage: tessera plugins [OPTIONS]\n\nOptions");
  out.add_options()("help,h", "print this text")("json", "print JSON instead of a table")(
      "path", po::value<std::vector<std::string>>()->value_name("DIR")->composing(),
      "search this directory (absolute) before the others; may be repeated")(
      "config", po::value<std::string>()->value_name("FILE"),
      "also search the directories of this job's [plugins], and check what it requires")(
      "only-path", "search no directories but those of --path and --config")(
      "no-open", "list what the files say about themselves, without running any code of theirs");
  return out;
}

// The report is printed first: it says why.
void check_required(const LoadReport& report, const std::vector<std::string>& required) {
  for (const std::string& id : required) {
    const auto usable = [&](const LoadEntry& e) { return e.id == id && e.state == LoadEntry::State::kAvailable; };
    if (std::none_of(report.entries.begin(), report.entries.end(), usable)) {
      fail(Code::kFailedPrecondition, "the config requires the plugin \"", id, "\", which is not available");
    }
  }
}

}  // namespace

int plugins_command(const std::vector<std::string>& args) {
  const po::options_description options = described();
  const po::variables_map given = parse_options("plugins", args, options);
  if (given.contains("help")) {
    std::cout << options;
    return 0;
  }
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
  if (given.contains("json")) {
    std::cout << report.json() << '\n';
  } else {
    std::cout << report.text();
  }
  check_required(report, config.require);
  return 0;
}

}  // namespace tessera::cli
