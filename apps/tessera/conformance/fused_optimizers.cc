#include "conformance/runner.h"

namespace tessera::cli {
OpTable fused_optimizer_ops() { return {}; }
}  // namespace tessera::cli
