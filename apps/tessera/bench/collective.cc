#include "bench/bench.h"

namespace tessera::cli {
int bench_collective(const std::vector<std::string>&) { throw UsageError("being built"); }
}  // namespace tessera::cli
