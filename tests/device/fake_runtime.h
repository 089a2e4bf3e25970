// A Runtime that finds the fake device next to the plugins of the build.
#pragma once

#include "tessera/runtime.h"

namespace tessera::test {

inline RuntimeOptions with_fake_device() {
  return {.plugin_path = {TESSERA_TEST_PLUGINS, TESSERA_PLUGINS}, .default_path = false};
}

}  // namespace tessera::test
