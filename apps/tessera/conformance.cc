// tessera conformance: starts the program tessera-conformance, which stands beside this one.
#include "command.h"
#include "program.h"

namespace tessera::cli {

int conformance_command(const std::vector<std::string>& args) {
  become("tessera-conformance", args, "the package libtessera-dev has it, and ./scripts/quickstart --tools builds it");
}

}  // namespace tessera::cli
