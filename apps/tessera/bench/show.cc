// tessera bench run and show: start from files of workloads and of results.
#include <iostream>

#include "bench/report/bars.h"
#include "bench/report/compare.h"
#include "bench/report/page.h"
#include "bench/report/peers.h"
#include "bench/report/record.h"
#include "bench/report/workload_file.h"
#include "bench/session.h"
#include "options.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

// True for results that are computed from measurements.
bool is_derived(const Line& line) {
  return line["bench"] == "bar" || line["bench"] == "change" || line["bench"] == "compared";
}

// A row per measurement, whether it has one round or many.
std::vector<Line> summary(const std::vector<Line>& lines) {
  const std::vector<Measured> results = measured(lines);
  const std::vector<std::string> names = labels(results);
  std::vector<Line> rows;
  for (size_t i = 0; i < results.size(); ++i) {
    const auto text = [&](double value) { return time_text(results[i].us(value)); };
    const Percentiles& t = results[i].time;
    rows.push_back({{"of", names[i]},
                    {"median", text(t.median)},
                    {"p25", text(t.p25)},
                    {"p75", text(t.p75)},
                    {"lines", results[i].lines}});
  }
  return rows;
}

}  // namespace

int run_workload_file(const std::vector<std::string>& args) {
  if (args.empty() || args[0].starts_with("-")) {
    Options options("bench run", "FILE [OPTIONS]", "Runs the workloads of a file, with the options of their bench.");
    if (!parse_options(args, options)) return 0;
    throw UsageError("tessera bench run needs a workload file first, such as configs/bench/step.toml");
  }
  const std::string name = bench_of_workloads(args[0]);
  for (const BenchEntry& bench : benches()) {
    if (name != bench.name) continue;
    std::vector<std::string> rest{"--workload", args[0]};
    rest.insert(rest.end(), args.begin() + 1, args.end());
    return run_session(bench, rest);
  }
  throw UsageError(args[0] + ": there is no bench \"" + name + "\"");
}

int show_result(const std::vector<std::string>& args) {
  std::string path, html;
  bool json = false;
  Options options("bench show", "FILE [OPTIONS]", "Shows what --json has printed.");
  auto add = options.add_options();
  add("html", po::value(&html)->value_name("FILE"), "write a page with plots");
  add("json", po::bool_switch(&json), "print the bars as JSON lines");
  options.argument("file", po::value(&path));
  if (!parse_options(args, options)) return 0;
  if (path.empty()) throw UsageError("tessera bench show needs a file that tessera bench --json has printed");
  const std::vector<Line> read = read_result(path, "show");
  if (!html.empty()) check_page(html);
  std::vector<Line> lines;
  std::remove_copy_if(read.begin(), read.end(), std::back_inserter(lines), is_derived);
  std::vector<std::string> strangers;
  const std::vector<Line> peers = completed_peers(peers_among(lines), without_peers(lines), &strangers);
  warn_of_strangers(path, strangers);
  lines = without_peers(lines);
  lines.insert(lines.end(), peers.begin(), peers.end());
  const std::vector<Line> bars = judged(lines);
  if (json) {
    for (const Line& bar : bars) std::cout << bar.dump() << '\n';
  } else {
    std::cout << table_text(summary(lines)) << '\n' << table_text(bars);
    for (const Line& line : lines) {
      if (line["bench"] == "run") std::cout << run_text(line) << '\n';
    }
  }
  std::cout << std::flush;
  lines.insert(lines.end(), bars.begin(), bars.end());
  if (!html.empty()) write_bench_page(html, lines);
  return 0;
}

}  // namespace tessera::cli
