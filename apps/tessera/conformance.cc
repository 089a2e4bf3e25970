// tessera conformance [--kernel K] [--device D] [--only RE] FILE...: recorded cases against this build.
#include <iostream>

#include "command.h"
#include "conformance/runner.h"
#include "options.h"
#include "tessera/abi/kernel.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr char kUsage[] =
    "usage: tessera conformance [OPTIONS] FILE...\n\n"
    "Runs the cases of each FILE and prints a line for each that does not plainly pass:\n"
    "  FAIL name: field, largest error    it differs\n"
    "  QUIRK name                         it differs where following the original is optional; counts as passed\n"
    "  SKIP name: reason                  this build cannot run it\n"
    "and last \"N passed, N failed, N skipped\". Exit status 0 if none failed and something passed, 1 if not,\n"
    "2 for wrong use and unreadable files.\n\n";

struct Arguments {
  std::string kernel, device, only;
  std::vector<std::string> files;
  bool help = false;
};

Arguments parse(const std::vector<std::string>& args, po::options_description& visible) {
  Arguments parsed;
  visible.add_options()("help,h", po::bool_switch(&parsed.help), "this text")(
      "kernel", po::value(&parsed.kernel)->default_value("auto"), "id of the kernel plugin that looks rows up")(
      "device", po::value(&parsed.device)->default_value("cpu"),
      "id of the device plugin where the features of sparse cases are")(
      "only", po::value(&parsed.only), "run the cases whose name this regular expression finds");
  po::options_description all;
  all.add(visible).add_options()("file", po::value(&parsed.files));
  parse_options("conformance", args, all, po::positional_options_description().add("file", -1));
  return parsed;
}

std::regex pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw UsageError("--only \"" + text + "\" is not a regular expression");
  }
}

// Also where it is there and cannot be used.
void require_kernel(const Runtime& runtime, const std::string& id) {
  if (id == "auto") return;
  try {
    runtime.create(TSR_KERNEL_KIND, id);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

}  // namespace

int conformance_command(const std::vector<std::string>& args) {
  po::options_description visible("options");
  const Arguments arguments = parse(args, visible);
  if (arguments.help) {
    std::cout << kUsage << visible;
    return 0;
  }
  if (arguments.files.empty()) throw UsageError("no FILE given: see tessera conformance --help");
  RunOptions options{arguments.kernel, nullptr, nullptr};
  const std::regex only = pattern(arguments.only);
  if (!arguments.only.empty()) options.only = &only;

  std::vector<CaseFile> files;
  for (const std::string& path : arguments.files) files.push_back(read_case_file(path));
  const Runtime runtime;
  require_kernel(runtime, options.kernel);
  options.device = open_device(runtime, arguments.device);
  Tally tally;
  for (const CaseFile& file : files) run_cases(file, runtime, options, std::cout, tally);
  std::cout << tally.passed << " passed, " << tally.failed << " failed, " << tally.skipped << " skipped" << std::endl;
  return tally.failed == 0 && tally.passed > 0 ? 0 : 1;
}

}  // namespace tessera::cli
