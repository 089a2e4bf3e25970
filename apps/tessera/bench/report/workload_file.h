// Workloads of a bench as a small TOML file:
//
//   bench = "lookup"           # the bench that they are for
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

// The workloads in the order of the file. `only` has names separated by commas, or is empty for all. Options in
// `given`, the command line, override the file's. Throws UsageError, one sentence, if the file is missing or not TOML,
// is for another bench, has a value that no option takes, or lacks a name in `only`.
std::vector<Workload> load_workloads(const std::string& path, const std::string& bench, const std::string& only,
                                     const std::vector<std::string>& given);

// The bench that a file is for. Throws UsageError if the file is missing, is not TOML, or names none.
std::string bench_of_workloads(const std::string& path);

}  // namespace tessera::cli
