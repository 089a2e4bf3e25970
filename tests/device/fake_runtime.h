// A Runtime that finds the fake device next to the plugins of the build.
#pragma once

#include "tessera/runtime.h"

namespace tessera::test {

inline RuntimeOptions with_fake_device() {
  RuntimeOptions options;
  options.plugin_path = {TESSERA_TEST_PLUGINS, TESSERA_PLUGINS};
  options.default_path = false;
  return options;
}

}  // namespace tessera::test
