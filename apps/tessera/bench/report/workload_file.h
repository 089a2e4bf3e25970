// Workloads of a bench as a small TOML file:
//
//   bench = "lookup"           # which bench they are for
//   [defaults]                 # options of all, by the names that --help lists, without dashes
//   pass = ["forward", "limit"]
//   [s1]                       # a workload's name and its own options
//   rows = 1_000_000
//   dim = 64
#pragma once

#include <string>
#include <vector>

namespace tessera::cli {

struct Workload {
  std::string name;
  std::string where;                   // "file.toml:5", for messages
  std::vector<std::string> arguments;  // "--rows=1000000", "--pass=forward,limit", "--quick"
};

// The entries in the order of the file. `only`: names separated by commas, or empty for all. Options that `given`, the
// command line, has too are left out: it overrides. UsageError, one sentence: no such file, no TOML, another bench, a
// value that is no option's, a name in `only` that the file lacks.
std::vector<Workload> load_workloads(const std::string& path, const std::string& bench, const std::string& only,
                                     const std::vector<std::string>& given);

// The bench that a file is for. UsageError: no such file, no TOML, none named.
std::string bench_of_workloads(const std::string& path);

}  // namespace tessera::cli
