// tessera verify PLUGIN.so [COMPONENT...]: checks whether a plugin keeps the contract.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <regex>
#include <set>

#include "command.h"
#include "modules/kernel_config.h"
#include "options.h"
#include "outputs.h"
#include "tessera/runtime.h"
#include "tessera/sdk/nearest.h"
#include "verify/report.h"
#include "verify/run.h"
#include "wrapped.h"

namespace tessera::cli {
namespace verify {
namespace {

namespace po = boost::program_options;

constexpr char kAbout[] =
    "Runs checks on the components of a plugin file, each in a process of its own with a deadline. Prints a result "
    "for each check: passed, FAILED, CRASHED, TIMED OUT, warning or skipped, with what the component did and the "
    "place in the contract that forbids it. The checks of a level need what the lower levels check:\n"
    "\n"
    "  1  static     what the file says about itself; no code of it runs\n"
    "  2  load       opening it, its entry, its probe\n"
    "  3  contract   creation, options, errors, memory, struct sizes, the process\n"
    "  4  semantics  layouts, lookups, updates, exchanges and gradients are right\n"
    "  5  stress     more of level 4, seeded sequences of calls, several threads\n"
    "\n"
    "COMPONENT is an id in the file, with options if it needs some: \"mlp?layers=[4,8]\". A transport that wraps "
    "another one may name it: \"codec(tcp)\". Without COMPONENT, all components are verified, without options.\n"
    "\n"
    "The exit status is 0 if nothing failed, 1 if something did, 2 after wrong use.";

struct Arguments {
  std::string plugin, only, compute_kernel, input, json, junit;
  std::vector<std::string> components;
  int level = 4;
  uint64_t seed = 1;
  double timeout = 0;
};

std::optional<Arguments> parse(const std::vector<std::string>& args) {
  Arguments a;
  Options options("verify", "[OPTIONS] PLUGIN.so [COMPONENT...]", kAbout);
  auto add = options.add_options();
  add("level", po::value(&a.level)->value_name("N")->default_value(4), "highest level of checks to run, 1 to 5");
  add("only", po::value(&a.only)->value_name("REGEX"),
      "run only checks whose name matches this regular expression, and those that must hold before them");
  add("compute-kernel", po::value(&a.compute_kernel)->value_name("NAME"),
      "for kernels: the compute kernel to check, with options of a table as in \"acme.rows?rounding=up\" (default: "
      "one that updates rows, without options)");
  add("input", po::value(&a.input)->value_name("PATH"),
      "for readers: a file, directory or pattern that it reads (default: small files that verify writes)");
  add("seed", po::value(&a.seed)->value_name("N")->default_value(1), "seed of tables, batches and sequences of calls");
  add("timeout", po::value(&a.timeout)->value_name("SECONDS"),
      "deadline of each check (default: its own, 10 to 200 s)");
  add("json", po::value(&a.json)->value_name("FILE"), "also write the results to this file");
  add("junit", po::value(&a.junit)->value_name("FILE"), "also write the results to this file as JUnit XML");
  options.argument("plugin", po::value(&a.plugin));
  options.argument("component", po::value(&a.components), -1);
  if (!parse_options(args, options)) return std::nullopt;
  if (a.plugin.empty()) throw UsageError("no PLUGIN.so given: see tessera verify --help");
  if (a.level < 1 || a.level > 5) throw UsageError(str_cat("--level is ", a.level, ", but there are levels 1 to 5"));
  if (!a.compute_kernel.empty()) (void)compute_kernel_name(a.compute_kernel);  // throws for an invalid name
  std::error_code error;
  const auto path = std::filesystem::canonical(a.plugin, error);
  if (error) throw UsageError(str_cat("cannot read ", a.plugin, ": ", error.message()));
  a.plugin = path.string();
  check_outputs({{"--json", a.json}, {"--junit", a.junit}}, {{a.plugin}, {}});
  return a;
}

std::regex pattern(const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript);
  } catch (const std::regex_error&) {
    throw UsageError("--only \"" + text + "\" is not a regular expression");
  }
}

// The components asked for, or all of the file's if none was asked for. Empty if the file has no readable note.
std::vector<Subject::What> components_of(const Arguments& a) {
  std::vector<plugin::ManifestLine> lines;
  try {
    lines = plugin::Library(a.plugin).note().components;
  } catch (const Error&) {
    return {};  // the first check reports the reason
  }
  std::vector<Subject::What> out;
  if (a.components.empty()) {
    for (const plugin::ManifestLine& line : lines)
      out.push_back({a.plugin, line, "{}", "", a.compute_kernel, a.seed, a.level, a.input});
    return out;
  }
  for (const std::string& name : a.components) {
    const size_t brace = name.find("={");  // options as a JSON object
    const ComponentName part = parse_component_name(name.substr(0, brace));
    const std::string options = all_options(brace == name.npos ? "{}" : name.substr(brace + 1), part);
    const size_t before = out.size();
    for (const plugin::ManifestLine& line : lines) {
      if (line.id != part.id) continue;
      out.push_back({a.plugin, line, options, part.inner, a.compute_kernel, a.seed, a.level, a.input});
    }
    if (out.size() == before)
      throw UsageError(str_cat("the plugin has no component \"", part.id, "\": it has ",
                               sdk::joined(lines, &plugin::ManifestLine::id)));
  }
  return out;
}

class Verification {
 public:
  explicit Verification(const Arguments& a) : a_(a), only_(pattern(a.only)), checks_(all_checks()) {}

  std::vector<Result> run() {
    const Subject::What file{a_.plugin, {}, "{}", "", "", a_.seed, a_.level, ""};
    for (const Check& check : checks_) {
      if (check.kind != nullptr && *check.kind == '\0' && !run(check, file) && check.gate == Check::kFile)
        return std::move(results_);
    }
    for (const Subject::What& what : components_of(a_)) {
      kinds_.insert(what.line.kind);
      run_component(what);
    }
    return std::move(results_);
  }
  // The kinds of the components that run() has looked at.
  std::vector<std::string> kinds() const { return {kinds_.begin(), kinds_.end()}; }

 private:
  void run_component(const Subject::What& what) {
    for (const Check& check : checks_) {
      if (check.kind != nullptr && check.kind != what.line.kind) continue;
      if (!run(check, what) && check.gate != Check::kNone) return;
    }
  }

  // Returns true if later checks may run.
  bool run(const Check& check, const Subject::What& what) {
    const bool chosen = std::regex_search(check.name, only_);
    if (check.level > a_.level || (!chosen && check.gate == Check::kNone)) return true;
    Check timed = check;
    if (a_.timeout > 0) timed.seconds = a_.timeout;
    const Result result = run_check(timed, what);
    const bool goes_on = !is_defect(result.outcome) && result.outcome != Outcome::kSkipped;
    if (chosen || !goes_on) {
      std::cout << wrapped(line_of(result), "", "  ") << std::flush;
      results_.push_back(result);
    }
    return goes_on;
  }

  const Arguments& a_;
  std::regex only_;
  std::vector<Check> checks_;
  std::vector<Result> results_;
  std::set<std::string> kinds_;
};

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) fail(Code::kUnavailable, "cannot write ", path);
}

}  // namespace
}  // namespace verify

int verify_command(const std::vector<std::string>& args) {
  const std::optional<verify::Arguments> given = verify::parse(args);
  if (!given) return 0;
  verify::Verification verification(*given);
  std::vector<verify::Result> results = verification.run();
  const verify::Run run{given->plugin, given->level, given->seed, std::move(results), verification.kinds()};
  for (const std::string& kind : run.kinds) {
    if (given->level >= 4 && !verify::not_looked_at(kind).empty())
      std::cout << wrapped(verify::not_looked_at(kind), "", "  ");
  }
  std::cout << verify::summary_of(run.results) << std::endl;
  verify::write(given->json, verify::json_of(run));
  verify::write(given->junit, verify::junit_of(run));
  const bool wrong = std::any_of(run.results.begin(), run.results.end(),
                                 [](const verify::Result& r) { return verify::is_defect(r.outcome); });
  return wrong || run.results.empty() ? 1 : 0;
}

}  // namespace tessera::cli
