// Replaces bench, conformance, calibrate and verify if TESSERA_TOOLS is off: says how to build them.
#include <algorithm>
#include <iostream>

#include "command.h"
#include "wrapped.h"

namespace tessera::cli {
namespace {

int not_built(const std::string& name, const std::vector<std::string>& args) {
  const std::string text = name +
                           " is not in this build: ./scripts/quickstart --tools builds it, and so do cmake -D "
                           "TESSERA_TOOLS=ON BUILD_FOLDER and cmake --build BUILD_FOLDER";
  const bool asks =
      std::any_of(args.begin(), args.end(), [](const std::string& a) { return a == "--help" || a == "-h"; });
  if (!asks && args != std::vector<std::string>{"--man"}) throw UsageError(text);
  std::cout << (asks ? wrapped(text) : ".SH DESCRIPTION\n" + text + '\n');
  return 0;
}

}  // namespace

int bench_command(const std::vector<std::string>& args) { return not_built("bench", args); }
int conformance_command(const std::vector<std::string>& args) { return not_built("conformance", args); }
int calibrate_command(const std::vector<std::string>& args) { return not_built("calibrate", args); }
int verify_command(const std::vector<std::string>& args) { return not_built("verify", args); }

}  // namespace tessera::cli
