// A Runtime that finds the fake device beside the plugins of the build.
#pragma once

#include <cstdlib>
#include <string>

#include "tessera/runtime.h"

namespace tessera::test {

inline RuntimeOptions with_fake_device() {
  RuntimeOptions options;
  const char* build = std::getenv("TESSERA_BUILD_DIR");
  options.plugin_path = {TESSERA_TEST_PLUGINS, std::string(build ? build : ".") + "/lib/tessera/plugins-1"};
  options.default_path = false;
  return options;
}

}  // namespace tessera::test
