#include "command.h"

namespace tessera::cli {
int launch_command(const std::vector<std::string>&) { throw UsageError("being built"); }
}  // namespace tessera::cli
