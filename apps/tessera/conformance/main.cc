// tessera-conformance [--kernel K] [--device D] [--only RE] FILE...: runs recorded cases against this build. `tessera
// conformance` starts it.
#include <algorithm>
#include <iostream>
#include <optional>

#include "command.h"
#include "conformance/runner.h"
#include "options.h"
#include "plugin_watch.h"
#include "program.h"
#include "tessera/abi/kernel.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

constexpr char kAbout[] =
    "Runs the cases of each FILE and prints a line for each case that does not simply pass:\n"
    "\n"
    "  FAIL name: field, largest error    it differs\n"
    "  QUIRK name                         it differs, but following the original is\n"
    "                                     optional here; counts as passed\n"
    "  SKIP name: reason                  this build cannot run it\n"
    "\n"
    "The last line is \"N passed, N failed, N skipped\". The exit status is 0 if no case failed and at least one "
    "passed, otherwise 1; it is 2 after wrong use and for unreadable files.";

struct Arguments {
  std::string kernel, device, only;
  std::vector<std::string> files;
};

// Nothing if help was printed.
std::optional<Arguments> parse(const std::vector<std::string>& args) {
  Arguments parsed;
  Options options("conformance", "[OPTIONS] FILE...", kAbout);
  auto add = options.add_options();
  add("kernel", po::value(&parsed.kernel)->value_name("ID")->default_value("auto"),
      "id of the kernel plugin for the lookups");
  add("device", po::value(&parsed.device)->value_name("ID")->default_value("cpu"),
      "id of the device plugin for the features of sparse cases");
  add("only", po::value(&parsed.only)->value_name("REGEX"),
      "run only cases whose name matches this regular "
      "expression");
  options.argument("file", po::value(&parsed.files), -1);
  if (!parse_options(args, options)) return std::nullopt;
  return parsed;
}

std::regex pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw UsageError("--only \"" + text + "\" is not a regular expression");
  }
}

// Also throws if the kernel is present but cannot be used.
void require_kernel(const Runtime& runtime, const std::string& id) {
  if (id == "auto") return;
  try {
    runtime.create(TSR_KERNEL_KIND, id);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

int run(const std::vector<std::string>& args) {
  const std::optional<Arguments> given = parse(args);
  if (!given) return 0;
  const Arguments& arguments = *given;
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

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) {
  return tessera::cli::status_of("tessera conformance", [&] {
    tessera::cli::report_crashes();
    return tessera::cli::run({argv + std::min(argc, 1), argv + argc});
  });
}
