#include "conformance/runner.h"

namespace tessera::cli {
OpTable optimizer_wrapper_ops() { return {}; }
}  // namespace tessera::cli
