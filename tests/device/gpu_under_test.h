// Which GPU the tests of GPUs run on.
#pragma once

#include <cstdlib>

namespace tessera::test {

// The id of its device and kernel: the emulated one, "emulator", or what TESSERA_TEST_GPU says, "cuda" on a machine
// with one.
inline const char* gpu_under_test() {
  const char* name = std::getenv("TESSERA_TEST_GPU");
  return name != nullptr && *name != '\0' ? name : "emulator";
}

}  // namespace tessera::test
