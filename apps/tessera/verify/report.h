// Prints the results of a run as text, JSON and JUnit's XML.
#pragma once

#include <string>
#include <vector>

#include "verify/run.h"

namespace tessera::cli::verify {

// For example "FAILED sharder.tiling, acme.hot: what it did [abi/sharder.h, tsr_layout]".
std::string line_of(const Result& result);
// The parts of a component of this kind that no check looks at, in one sentence; "": the kind is unknown.
std::string not_looked_at(const std::string& kind);
// "12 passed, 1 failed, ...": all outcomes that occurred.
std::string summary_of(const std::vector<Result>& results);

struct Run {
  std::string path;  // of the plugin
  int level;
  uint64_t seed;
  std::vector<Result> results;
  std::vector<std::string> kinds;  // of the components that were verified
};
std::string json_of(const Run& run);
std::string junit_of(const Run& run);

}  // namespace tessera::cli::verify
