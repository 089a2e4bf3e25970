// What every bench has around it: workload files, the record of all lines, noise, bars, comparison and the page.
#pragma once

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

}  // namespace tessera::cli
