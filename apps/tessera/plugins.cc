#include "command.h"

namespace tessera::cli {
int plugins_command(const std::vector<std::string>&) { throw UsageError("being built"); }
}  // namespace tessera::cli
