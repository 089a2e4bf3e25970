#include "conformance/runner.h"

namespace tessera::cli {
OpTable embedding_module_ops() { return {}; }
}  // namespace tessera::cli
