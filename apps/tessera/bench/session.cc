#include "bench/session.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <cmath>
#include <iostream>
#include <iterator>
#include <optional>
#include <set>

#include "bench/report/bars.h"
#include "bench/report/circumstances.h"
#include "bench/report/compare.h"
#include "bench/report/lines.h"
#include "bench/report/page.h"
#include "bench/report/peers.h"
#include "bench/report/record.h"
#include "bench/report/workload_file.h"
#include "tessera/abi/kernel.h"
#include "tessera/process_group.h"
#include "tessera/runtime.h"

namespace tessera::cli {
namespace {

namespace po = boost::program_options;

struct SessionOptions {
  std::string workload, only, html, compare;
  bool json = false, round_per_line = false;
};

// Takes the session's own options out of `args` and returns the rest for the bench.
std::vector<std::string> take_options(const std::vector<std::string>& args, SessionOptions* o) {
  po::options_description own;
  own.add_options()("workload", po::value(&o->workload))("only", po::value(&o->only))("html", po::value(&o->html))(
      "compare", po::value(&o->compare))("json", po::bool_switch(&o->json))("round-per-line",
                                                                            po::bool_switch(&o->round_per_line));
  try {
    po::variables_map values;
    const po::parsed_options parsed =
        po::command_line_parser(args)
            .options(own)
            .style(po::command_line_style::default_style & ~po::command_line_style::allow_guessing)
            .allow_unregistered()
            .run();
    po::store(parsed, values);
    po::notify(values);
    for (const char* name : {"workload", "only", "html", "compare"}) {
      if (values.count(name) > 0 && values[name].as<std::string>().empty())
        throw UsageError(
            str_cat("--", name, " is empty: ", name == std::string("only") ? "name workloads" : "name a file"));
    }
    if (!o->only.empty() && o->workload.empty())
      throw UsageError("--only chooses workloads of --workload FILE: name it");
    return po::collect_unrecognized(parsed.options, po::include_positional);
  } catch (const po::error& e) {
    throw UsageError(e.what());
  }
}

// A number, or the list of numbers that the lines have; null if they have none.
Line threads_of(const std::vector<Line>& lines) {
  Line all = Line::array();
  for (const Line& line : lines) {
    if (line.contains("threads") && std::find(all.begin(), all.end(), line["threads"]) == all.end())
      all.push_back(line["threads"]);
  }
  return all.empty() ? Line() : all.size() == 1 ? all[0] : all;
}

// The versions of the kernel plugins that the lines name: {"cpu": "1.0.0"}.
Line kernels_of(const std::vector<Line>& lines) {
  std::set<std::string> named;
  for (const Line& line : lines) named.insert(line.value("kernel", ""));
  const Runtime runtime;
  if (named.contains("auto")) named.insert(runtime.create(TSR_KERNEL_KIND, "auto")->id());
  Line versions = Line::object();
  for (const LoadEntry& entry : runtime.report().entries) {
    if (entry.kind == TSR_KERNEL_KIND && named.contains(entry.id)) versions[entry.id] = entry.version;
  }
  return versions;
}

struct Job {
  Workload workload;
  BenchRun run;
};

class Session {
 public:
  Session(const BenchEntry& bench, const std::vector<std::string>& args)
      : bench_(bench), args_(args), given_(take_options(args, &options_)) {
    if (!options_.compare.empty()) before_ = read_result(options_.compare);
  }

  // Returns false if help was printed.
  bool prepare() {
    std::vector<Workload> workloads{Workload{}};
    if (!options_.workload.empty()) workloads = load_workloads(options_.workload, bench_.name, options_.only, given_);
    if (options_.round_per_line && workloads.size() > 1) {
      throw UsageError("--round-per-line is for one workload at a time: choose it with --only");
    }
    for (Workload& w : workloads) {
      CommonOptions common;
      common.json = options_.json;
      common.round_per_line = options_.round_per_line;
      common.workload = w.name;
      common.record = record_.fd();
      std::vector<std::string> arguments = w.arguments;
      arguments.insert(arguments.end(), given_.begin(), given_.end());
      try {
        jobs_.push_back({w, bench_.prepare(arguments, common)});
      } catch (const UsageError& e) {
        throw UsageError(w.name.empty() ? e.what() : str_cat(w.where, ": workload ", w.name, ": ", e.what()));
      }
      if (!jobs_.back().run) return false;
    }
    if (!options_.html.empty()) check_page(options_.html);
    return true;
  }

  int run() {
    const Noise noise;
    const Stopwatch watch;
    int status = 0;
    for (const Job& job : jobs_) status = std::max(status, run_one(job));
    const RankEnvironment here = RankEnvironment::from_environment();
    if (here.rank == 0) close(watch.us() / 1e6, here.world_size == 1 ? noise.share() : std::nullopt);
    return status;
  }

 private:
  // A workload that cannot run is reported and skipped, so that the other workloads' figures are not lost.
  int run_one(const Job& job) const {
    if (jobs_.size() == 1) return job.run();
    try {
      return job.run();
    } catch (const std::exception& e) {
      std::cerr << str_cat("tessera bench: workload ", job.workload.name, " is left out: ", e.what(), "\n");
      return 1;
    }
  }

  Line run_record(const std::vector<Line>& lines, double seconds, const std::optional<double>& noise) const {
    Line run{{"bench", "run"}, {"name", bench_.name}};
    // A file name need not be UTF-8, but a line must be.
    run["arguments"] = Line::parse(Line(args_).dump(-1, ' ', false, Line::error_handler_t::replace));
    run.update(machine_record());
    if (const Line threads = threads_of(lines); !threads.is_null()) run["threads"] = threads;
    if (const Line kernels = kernels_of(lines); !kernels.empty()) run["kernels"] = kernels;
    run["seconds"] = std::round(1e3 * seconds) / 1e3;
    run["others_percent"] = noise ? Line(std::round(1e3 * *noise) / 10) : Line();
    return run;
  }

  // The peers' lines of --compare. They count as measured in this run from here on.
  std::vector<Line> peers_of(const std::vector<Line>& lines) const {
    std::vector<std::string> strangers;
    std::vector<Line> peers = completed_peers(peers_of_another_run(before_), lines, &strangers);
    warn_of_strangers(options_.compare, strangers);
    return peers;
  }

  void close(double seconds, const std::optional<double>& noise) {
    std::vector<Line> lines = record_.lines();
    const Line run = run_record(lines, seconds, noise);
    const std::vector<Line> peers = peers_of(lines);
    lines.insert(lines.end(), peers.begin(), peers.end());
    const std::vector<Line> bars = judged(lines);
    lines.insert(lines.end(), bars.begin(), bars.end());
    lines.push_back(run);
    std::vector<Line> changes;
    if (!without_peers(before_).empty()) changes = compare(before_, lines);
    lines.insert(lines.end(), changes.begin(), changes.end());
    if (!options_.html.empty()) write_bench_page(options_.html, lines);
    if (options_.round_per_line) return;  // a script reads exactly the lines that it asked for
    if (options_.json) {
      for (const auto& part : {peers, bars, {run}, changes}) {
        for (const Line& line : part) std::cout << line.dump() << '\n';
      }
      std::cout << std::flush;
      return;
    }
    std::cout << '\n' << table_text(bars) << run_text(run) << '\n' << changes_text(changes) << std::flush;
  }

  const BenchEntry& bench_;
  std::vector<std::string> args_;
  SessionOptions options_;
  std::vector<std::string> given_;
  std::vector<Line> before_;
  Record record_;
  std::vector<Job> jobs_;
};

}  // namespace

void warn_of_strangers(const std::string& file, const std::vector<std::string>& strangers) {
  for (const std::string& text : strangers) {
    std::cerr << str_cat("tessera bench: ", file, ": nothing was measured under the circumstances of ", text,
                         ": they must be those of a line that the bench prints\n");
  }
}

int run_session(const BenchEntry& bench, const std::vector<std::string>& args) {
  Session session(bench, args);
  return session.prepare() ? session.run() : 0;
}

}  // namespace tessera::cli
