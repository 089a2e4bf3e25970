// The frame of every bench: workload files, the record of all lines, noise, bars, comparison and the page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace tessera::cli {

struct BenchEntry {
  const char* name;
  const char* summary;  // one line for `tessera bench --help`
  BenchRun (*prepare)(const std::vector<std::string>& args, const CommonOptions& common);
};

// Runs the bench once, or once for each workload of --workload. All options are read before anything is measured.
// Afterwards prints the bars on speed that the lines speak of, what changed since --compare, and how quiet the machine
// was; with --html writes the page. Returns the largest exit status of the runs.
int run_session(const BenchEntry& bench, const std::vector<std::string>& args);

// `args`: a workload file, then options. Runs the bench of `benches` that the file is for.
int run_workload_file(std::span<const BenchEntry> benches, const std::vector<std::string>& args);

// `args`: a file that --json has printed, with peers' lines or without, and --html FILE. Prints what was measured, the
// bars and the run again, without measuring.
int show_result(const std::vector<std::string>& args);

// On standard error: lines of peers in `file` that fit nothing.
void warn_of_strangers(const std::string& file, const std::vector<std::string>& strangers);

}  // namespace tessera::cli
