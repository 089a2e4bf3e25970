#include "conformance/runner.h"

namespace tessera::cli {
OpTable planner_ops() { return {}; }
}  // namespace tessera::cli
