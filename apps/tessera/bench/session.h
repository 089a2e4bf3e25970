// The frame around every bench: workload files, the record of all lines, noise, bars, comparison and the page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace tessera::cli {

struct BenchEntry {
  const char* name;
  const char* summary;  // summary for `tessera bench --help`, one line
  BenchRun (*prepare)(const std::vector<std::string>& args, const CommonOptions& common);
};

// All benches, in the order of `tessera bench --help`.
std::span<const BenchEntry> benches();

// Runs the bench once, or once per workload of --workload. All options are read before anything is measured. Then
// prints the speed bars, the changes since --compare, and how quiet the machine was; --html also writes the page.
// Returns the largest exit status of the runs.
int run_session(const BenchEntry& bench, const std::vector<std::string>& args);

// `args` has a workload file, then options. Runs the bench that the file is for.
int run_workload_file(const std::vector<std::string>& args);

// `args` has a file that --json has printed, with or without peers' lines, and --html FILE. Prints the measurements,
// bars and the run again, without measuring.
int show_result(const std::vector<std::string>& args);

// Reports on standard error the peers' lines in `file` that fit nothing.
void warn_of_strangers(const std::string& file, const std::vector<std::string>& strangers);

}  // namespace tessera::cli
